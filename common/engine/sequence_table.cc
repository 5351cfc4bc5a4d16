// SPDX-License-Identifier: Apache-2.0
#include "common/engine/sequence_table.h"

namespace baton::engine {

Sequence& SequenceTable::Add(SequenceSpec spec, absl::Time now) {
  auto owned = std::make_unique<Sequence>();
  Sequence& sequence = *owned;
  sequence.arrival = next_arrival_++;
  sequence.submitted_at = sequence.queued_at = now;
  sequence.branches.resize(1);
  sequence.trunk().tokens = spec.prompt;
  sequence.prompt_tokens = static_cast<uint32_t>(spec.prompt.size());
  sequence.spec = std::move(spec);
  sequence.state = sequence.spec.role == Role::kDecode ? State::kExpected : State::kQueued;
  if (sequence.spec.deadline != absl::InfiniteFuture()) {
    deadlines_.emplace(sequence.spec.deadline, sequence.arrival);
  }
  by_ref_.emplace(sequence.spec.ref, &sequence);
  by_arrival_.emplace(sequence.arrival, std::move(owned));
  return sequence;
}

Sequence* SequenceTable::Find(const SequenceRef& ref) const {
  const auto it = by_ref_.find(ref);
  return it == by_ref_.end() ? nullptr : it->second;
}

void SequenceTable::Remove(Sequence& sequence) {
  ForgetDeadline(sequence);
  by_ref_.erase(sequence.spec.ref);
  by_arrival_.erase(sequence.arrival);
}

absl::Time SequenceTable::NextDeadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

std::vector<Sequence*> SequenceTable::TakeExpired(absl::Time now) {
  std::vector<Sequence*> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(by_arrival_.at(deadlines_.begin()->second).get());
    deadlines_.erase(deadlines_.begin());
  }
  return expired;
}

void SequenceTable::ForgetDeadline(const Sequence& sequence) {
  deadlines_.erase({sequence.spec.deadline, sequence.arrival});
}

}  // namespace baton::engine
