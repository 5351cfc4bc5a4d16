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
  uint32_t seats_taken = 0;
  table_.Count([&](const Sequence& sequence) {
    seats_taken += sequence.admitted() ? sequence.seats() : 0;
    return false;
  });
  if (seats_taken >= options_.max_sequences) return;
  for (Sequence* sequence : AdmissionOrder(now)) {
    const uint32_t seats = sequence->seats();
    if (seats_taken + seats > options_.max_sequences || !TryAdmit(*sequence)) return;
    seats_taken += seats;
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

// The length of the trunk's table; what it has dropped is not taken again.
uint32_t Engine::Impl::TableToAdmit(const Sequence& sequence) const {
  if (sequence.fork_at > 0) return kv::BlocksForTokens(sequence.fork_at);
  const bool more = sequence.spec.role != Role::kPrefill && !sequence.forked;
  const uint64_t next = sequence.trunk().tokens.size() + (more ? 1 : 0);
  return kv::BlocksForTokens(std::min(next, MostPositions(sequence)));
}

uint32_t Engine::Impl::BlocksToAdmit(const Sequence& sequence) const {
  if (sequence.fork_at > 0) {
    const uint32_t shared = sequence.fork_at / kv::kBlockTokens;
    uint32_t blocks = shared;
    for (const Branch& branch : sequence.branches) {
      blocks += kv::BlocksForTokens(branch.tokens.size()) - shared;
    }
    return blocks;
  }
  if (sequence.branches.size() > 1) {
    return static_cast<uint32_t>(sequence.swapped.size()) + sequence.new_blocks();
  }
  const uint32_t table = TableToAdmit(sequence) - sequence.dropped_blocks(sequence.trunk());
  return std::max(table, BlocksToFork(sequence));
}

// What the first tokens of several choices or beams take.
uint32_t Engine::Impl::BlocksToFork(const Sequence& sequence) const {
  if (sequence.forked || sequence.seats() == 1) return 0;
  const uint64_t blocks = kv::BlocksForBranches(
      sequence.prompt_tokens, std::min(sequence.spec.max_tokens - 1, 1u), sequence.spec.width());
  return static_cast<uint32_t>(blocks) - sequence.dropped_blocks(sequence.trunk());
}

// So that what is admitted now does not put others aside at once.
uint32_t Engine::Impl::ReserveOf(const Sequence& sequence) const {
  if (!sequence.admitted() || !sequence.holds_blocks) return 0;
  const uint32_t held = sequence.held_blocks();
  const bool grows = kv::MostBlocks(sequence.spec.window, 0, MostPositions(sequence)) > held;
  if (sequence.seats() == 1) return grows ? 1 : 0;
  if (!sequence.forked) {
    const uint32_t fork = BlocksToFork(sequence);
    return std::max(grows ? 1u : 0u, fork > held ? fork - held : 0);
  }
  uint32_t blocks = 0;
  for (const Branch& branch : sequence.branches) {
    const uint32_t needed = kv::BlocksForTokens(branch.tokens.size());
    const auto has = static_cast<uint32_t>(branch.blocks.size());
    blocks += needed > has ? needed - has : 1;
  }
  return std::max(blocks, sequence.seats());
}

uint32_t Engine::Impl::GrowthReserve() const {
  uint32_t blocks = 0;
  table_.Count([&](const Sequence& sequence) {
    blocks += ReserveOf(sequence);
    return false;
  });
  return blocks;
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
                 ? costs.Prompt(sequence.trunk().computed, job.tokens, limits_.chunk_tokens)
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
  if (!HasRoomFor(sequence, BlocksToAdmit(sequence), GrowthReserve())) return false;
  const bool taken =
      sequence.swapped.empty() ? TakeBlocks(sequence, TableToAdmit(sequence)) : SwapIn(sequence);
  if (!taken) return false;
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
