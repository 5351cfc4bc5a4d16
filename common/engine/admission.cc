// SPDX-License-Identifier: Apache-2.0
// Who gets blocks and a seat next.
#include <algorithm>
#include <utility>

#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

uint32_t BlocksNeeded(const Sequence& sequence) {
  const uint64_t output = sequence.spec.role == Role::kPrefill ? 0 : sequence.spec.max_tokens - 1;
  return kv::BlocksForTokens(sequence.prompt_tokens + output);
}

}  // namespace

// Stops at the first that does not fit: what runs ends by itself and needs
// nothing more, so the first in line gets its blocks in bounded time, and is
// not overtaken for ever by smaller ones.
void Engine::Impl::Admit(absl::Time now) {
  uint32_t seats_taken = table_.Count([](const Sequence& s) { return s.admitted(); });
  if (seats_taken >= options_.max_sequences) return;
  for (Sequence* sequence : AdmissionOrder(now)) {
    if (seats_taken >= options_.max_sequences || !TryAdmit(*sequence)) return;
    ++seats_taken;
  }
}

// Local prompts in the scheduler's order and hand-offs in theirs, merged by
// the time the heads have waited, so that neither kind starves the other.
std::vector<Sequence*> Engine::Impl::AdmissionOrder(absl::Time now) const {
  const auto locals = table_.Select([](const Sequence& s) { return s.state == State::kQueued; });
  auto handoffs = table_.Select([](const Sequence& s) { return s.state == State::kReserving; });
  std::stable_sort(handoffs.begin(), handoffs.end(), [](const Sequence* a, const Sequence* b) {
    return a->queued_at < b->queued_at;
  });
  std::vector<sched::Prompt> prompts;
  for (const Sequence* local : locals) {
    prompts.push_back({local->prompt_tokens, local->queued_at, local->arrival});
  }
  std::vector<Sequence*> order;
  auto handoff = handoffs.begin();
  for (uint32_t index : sched::ServiceOrder(prompts, limits_.aging, now)) {
    while (handoff != handoffs.end() && (*handoff)->queued_at < locals[index]->queued_at) {
      order.push_back(*handoff++);
    }
    order.push_back(locals[index]);
  }
  order.insert(order.end(), handoff, handoffs.end());
  return order;
}

bool Engine::Impl::TryAdmit(Sequence& sequence) {
  auto blocks = pool_.Allocate(BlocksNeeded(sequence), kv::Owner::kRequest);
  if (!blocks.ok()) return false;
  sequence.blocks = *std::move(blocks);
  sequence.holds_blocks = true;
  if (sequence.state == State::kReserving) {
    Grant(sequence);
  } else {
    sequence.state = State::kPrompt;
  }
  return true;
}

}  // namespace baton::engine
