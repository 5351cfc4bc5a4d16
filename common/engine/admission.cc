// SPDX-License-Identifier: Apache-2.0
// Who gets blocks and a seat next.
#include <algorithm>
#include <utility>

#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// What a prompt token is taken to cost until the first ones were measured.
constexpr absl::Duration kTokenAtFirst = absl::Microseconds(500);

// Positions whose KV a sequence can ever need here.
uint64_t MostPositions(const Sequence& sequence) {
  const uint64_t output = sequence.spec.role == Role::kPrefill ? 0 : sequence.spec.max_tokens - 1;
  return sequence.prompt_tokens + output;
}

}  // namespace

// Stops at the first that does not fit, so that it is not overtaken for ever by
// smaller ones: the first of those that run is never put aside, ends, and makes
// room.
void Engine::Impl::Admit(absl::Time now) {
  uint32_t seats_taken = table_.Count([](const Sequence& s) { return s.admitted(); });
  if (seats_taken >= options_.max_sequences) return;
  for (Sequence* sequence : AdmissionOrder(now)) {
    if (seats_taken >= options_.max_sequences || !TryAdmit(*sequence)) return;
    ++seats_taken;
  }
}

// Those that were put aside come before all of their class and below.
std::vector<Sequence*> Engine::Impl::AdmissionOrder(absl::Time now) const {
  auto aside = table_.Select([](const Sequence& s) { return s.state == State::kPreempted; });
  std::vector<Sequence*> order = InOrder(table_.Select([](const Sequence& s) {
    return s.state == State::kQueued || s.state == State::kReserving;
  }),
                                         now);
  if (aside.empty()) return order;
  std::sort(aside.begin(), aside.end(), [&](const Sequence* a, const Sequence* b) {
    return KeepRank(*a, now) < KeepRank(*b, now);
  });
  const int64_t best = KeepRank(*aside.front(), now).first;
  const auto behind = std::stable_partition(
      order.begin(), order.end(),
      [&](const Sequence* sequence) { return KeepRank(*sequence, now).first < best; });
  order.insert(behind, aside.begin(), aside.end());
  return order;
}

// The length of its table; what it has dropped is not taken again.
uint32_t Engine::Impl::TableToAdmit(const Sequence& sequence) const {
  const bool more = sequence.spec.role != Role::kPrefill && sequence.outputs() == 0;
  const uint64_t next = sequence.tokens.size() + (more ? 1 : 0);
  return kv::BlocksForTokens(std::min(next, MostPositions(sequence)));
}

uint32_t Engine::Impl::BlocksToAdmit(const Sequence& sequence) const {
  return TableToAdmit(sequence) - sequence.dropped_blocks();
}

// A block for each running sequence that may still grow, so that what is
// admitted now does not put others aside at once.
uint32_t Engine::Impl::GrowthReserve() const {
  return table_.Count([](const Sequence& sequence) {
    return sequence.admitted() && sequence.holds_blocks &&
           kv::MostBlocks(sequence.spec.window, 0, MostPositions(sequence)) >
               sequence.held_blocks();
  });
}

// A hand-off has nothing to be computed here.
sched::Job Engine::Impl::JobOf(const Sequence& sequence) const {
  sched::Job job;
  job.arrival = sequence.arrival;
  job.since = sequence.queued_at;
  job.tokens = sequence.state == State::kReserving ? 1 : sequence.remaining();
  job.deadline = sequence.spec.deadline;
  job.priority = sequence.spec.priority;
  job.tenant = sequence.spec.tenant;
  if (sequence.state == State::kReserving) return job;
  const sched::StepCosts& costs = costs_.costs();
  job.work = costs.knows_prompts()
                 ? costs.Prompt(sequence.computed, job.tokens, limits_.chunk_tokens)
                 : job.tokens * kTokenAtFirst;
  return job;
}

std::vector<Sequence*> Engine::Impl::InOrder(std::span<Sequence* const> sequences,
                                             absl::Time now) const {
  std::vector<sched::Job> jobs;
  jobs.reserve(sequences.size());
  for (const Sequence* sequence : sequences) jobs.push_back(JobOf(*sequence));
  std::vector<Sequence*> ordered;
  ordered.reserve(sequences.size());
  for (const uint32_t index : policy_->Order(jobs, now)) ordered.push_back(sequences[index]);
  return ordered;
}

void Engine::Impl::RefuseInfeasible(absl::Time now) {
  if (!costs_.costs().knows_prompts()) return;
  const auto waiting = table_.Select([](const Sequence& s) { return s.state == State::kQueued; });
  if (waiting.empty()) return;
  absl::Duration begun;
  for (const Sequence* sequence :
       table_.Select([](const Sequence& s) { return s.state == State::kPrompt; })) {
    begun += JobOf(*sequence).work;
  }
  std::vector<sched::Job> jobs;
  jobs.reserve(waiting.size());
  for (const Sequence* sequence : waiting) jobs.push_back(JobOf(*sequence));
  for (const sched::Refusal& refusal : policy_->Infeasible(jobs, begun, now)) {
    End(*waiting[refusal.job], refusal.status);
  }
}

bool Engine::Impl::TryAdmit(Sequence& sequence) {
  if (!HasRoomFor(sequence, BlocksToAdmit(sequence), GrowthReserve()) ||
      !TakeBlocks(sequence, TableToAdmit(sequence))) {
    return false;
  }
  if (sequence.state == State::kPreempted) {
    Resume(sequence);
  } else if (sequence.state == State::kReserving) {
    Grant(sequence);
  } else {
    sequence.state = State::kPrompt;
  }
  return true;
}

// Those that only the prefix cache holds count: they are evicted when needed.
uint32_t Engine::Impl::FreeBlocks() const { return pool_.free_blocks() + pool_.cache_only(); }

}  // namespace baton::engine
