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
  const auto waiting = table_.Select(
      [](const Sequence& s) { return s.state == State::kQueued || s.state == State::kReserving; });
  for (Sequence* sequence : InOrder(waiting, now)) {
    if (seats_taken >= options_.max_sequences || !TryAdmit(*sequence)) return;
    ++seats_taken;
  }
}

// A hand-off has nothing to be computed here.
sched::Job Engine::Impl::JobOf(const Sequence& sequence) const {
  sched::Job job;
  job.arrival = sequence.arrival;
  job.since = sequence.queued_at;
  job.tokens = sequence.state == State::kReserving ? 1 : sequence.remaining_prompt();
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
  for (const Sequence* sequence : waiting) jobs.push_back(JobOf(*sequence));
  for (const sched::Refusal& refusal : policy_->Infeasible(jobs, begun, now)) {
    End(*waiting[refusal.job], refusal.status);
  }
}

bool Engine::Impl::TryAdmit(Sequence& sequence) {
  if (!TakeBlocks(sequence, BlocksNeeded(sequence))) return false;
  if (sequence.state == State::kReserving) {
    Grant(sequence);
  } else {
    sequence.state = State::kPrompt;
  }
  return true;
}

}  // namespace baton::engine
