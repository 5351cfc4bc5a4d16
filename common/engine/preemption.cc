// SPDX-License-Identifier: Apache-2.0
// Growing while blocks last, and who is put aside when they do not.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// What the rate of a copy counts against those before it.
constexpr double kCopyWeight = 0.25;

bool IsGrown(const Sequence& sequence, const kv::BlockPool& pool) {
  return std::all_of(sequence.branches.begin(), sequence.branches.end(),
                     [&](const Branch& branch) { return HasBlocksForNext(branch, pool); });
}

// Of its tokens, those that would be computed again.
uint32_t ComputedTokens(const Sequence& sequence) {
  const Branch& trunk = sequence.trunk();
  return sequence.branches.size() == 1 ? trunk.computed : sequence.live_blocks() * kv::kBlockTokens;
}

}  // namespace

// Smaller is kept longer. Classes rise while sequences wait and run, so that in
// the end it is the first to have come that is kept.
std::pair<int64_t, uint64_t> Engine::Impl::KeepRank(const Sequence& sequence,
                                                    absl::Time now) const {
  return {
      sched::AgedClass(sequence.spec.priority, sequence.submitted_at, options_.policy.aging, now),
      sequence.arrival};
}

// The best are served first; those that get no block are put aside or wait.
void Engine::Impl::Grow(absl::Time now) {
  std::vector<Sequence*> growing = table_.Select([this](const Sequence& sequence) {
    return sequence.state == State::kDecoding && !IsGrown(sequence, pool_);
  });
  std::sort(growing.begin(), growing.end(), [&](const Sequence* a, const Sequence* b) {
    return KeepRank(*a, now) < KeepRank(*b, now);
  });
  for (Sequence* sequence : growing) {
    for (size_t i = 0; sequence->state == State::kDecoding && i < sequence->branches.size(); ++i) {
      GrowBranch(*sequence, i, now);
    }
  }
}

void Engine::Impl::GrowBranch(Sequence& sequence, size_t index, absl::Time now) {
  Branch& branch = sequence.branches[index];
  while (sequence.state == State::kDecoding && !HasBlocksForNext(branch, pool_)) {
    const auto block = Allocate(1);
    if (!block.ok()) {
      Sequence* victim = Victim(now);
      if (victim == nullptr) return;
      Preempt(*victim, now);
    } else if (WritesShared(branch, pool_)) {
      kv::BlockId& shared = branch.blocks[branch.computed / kv::kBlockTokens];
      arena_->CopyBlock(shared, block->front());
      pool_.Release(std::exchange(shared, block->front()), kv::Owner::kRequest);
    } else {
      branch.blocks.push_back(block->front());
    }
  }
}

// Of those whose blocks nobody writes, but for the first: null when there is
// no other, and it has to wait for hand-offs that land or fail.
Sequence* Engine::Impl::Victim(absl::Time now) const {
  std::vector<Sequence*> running = table_.Select([](const Sequence& sequence) {
    const bool runs = sequence.state == State::kDecoding || sequence.state == State::kPrompt;
    return runs && sequence.spec.role != Role::kPrefill;
  });
  if (running.size() < 2) return nullptr;
  std::sort(running.begin(), running.end(), [&](const Sequence* a, const Sequence* b) {
    return KeepRank(*a, now) > KeepRank(*b, now);
  });
  running.pop_back();
  for (Sequence* sequence : running) {
    if (CanRecompute(*sequence) || HasSwapRoom(*sequence)) return sequence;
  }
  return nullptr;
}

// Not what came converted, and not what has rolled on beyond the pool.
bool Engine::Impl::CanRecompute(const Sequence& sequence) const {
  if (sequence.spec.swap_only) return false;
  if (sequence.branches.size() == 1) {
    return kv::BlocksForTokens(sequence.trunk().tokens.size() + 1) <= pool_.capacity();
  }
  const uint32_t shared = sequence.common_tokens() / kv::kBlockTokens;
  uint64_t blocks = shared;
  for (const Branch& branch : sequence.branches) {
    blocks += kv::BlocksForTokens(branch.tokens.size() + 1) - shared;
  }
  return blocks <= pool_.capacity();
}

bool Engine::Impl::HasSwapRoom(const Sequence& sequence) const {
  return swap_ != nullptr && swap_->free_blocks() >= sequence.live_blocks();
}

// Whether copying the KV out and in is predicted to take less than computing it.
bool Engine::Impl::SwapIsCheaper(const Sequence& sequence) const {
  if (!HasSwapRoom(sequence)) return false;
  if (!CanRecompute(sequence) || !costs_.costs().knows_prompts()) return true;
  const double bytes = static_cast<double>(sequence.live_blocks()) *
                       static_cast<double>(arena_->layout().BlockBytes());
  return absl::Seconds(2 * bytes / copy_rate_) <
         costs_.costs().Prompt(0, ComputedTokens(sequence), limits_.chunk_tokens);
}

void Engine::Impl::DropKv(Sequence& sequence) {
  if (sequence.forked) KeepPrefix(sequence, sequence.trunk());  // it may be there still
  ReleaseBlocks(sequence);
  for (Branch& branch : sequence.branches) {
    branch.once_computed = std::max(branch.once_computed, branch.computed);
    branch.computed = branch.dropped_end = 0;
    branch.blocks.clear();
  }
  sequence.fork_at = sequence.several() ? sequence.common_tokens() : 0;
}

void Engine::Impl::Preempt(Sequence& sequence, absl::Time now) {
  ++counters_.preemptions;
  ++sequence.preemptions.count;
  sequence.preempted_at = now;
  if (ComputedTokens(sequence) > 0 && SwapIsCheaper(sequence)) {
    SwapOut(sequence);
  } else {
    DropKv(sequence);
  }
  sequence.state = State::kPreempted;
  LogDebug("sequence put aside", {{"request_id", sequence.spec.request_id},
                                  {"branches", sequence.branches.size()},
                                  {"tokens", sequence.trunk().tokens.size()},
                                  {"swapped_blocks", sequence.swapped.size()}});
}

// It has its blocks: goes on where it stood, or computes its KV again.
void Engine::Impl::Resume(Sequence& sequence) {
  sequence.preemptions.time += absl::Now() - sequence.preempted_at;
  const bool decoding = sequence.forked && sequence.fork_at == 0 &&
                        (sequence.several() || sequence.trunk().remaining() == 1);
  sequence.state = decoding ? State::kDecoding : State::kPrompt;
  if (!decoding) return;
  DropCancelled(sequence);
  Settle(sequence);
}

// What branches share is copied once.
void Engine::Impl::SwapOut(Sequence& sequence) {
  ++counters_.swaps;
  const absl::Time begin = absl::Now();
  absl::flat_hash_map<kv::BlockId, uint32_t> index;
  std::vector<kv::BlockId> distinct;
  std::vector<std::vector<kv::BlockId>> tables;
  for (const Branch& branch : sequence.branches) {
    std::vector<kv::BlockId>& table = tables.emplace_back();
    for (uint32_t i = 0; i < kv::BlocksForTokens(branch.computed); ++i) {
      const kv::BlockId block = branch.blocks[i];
      if (sequence.dropped(branch, i)) {
        table.push_back(kv::BlockId{0});
        continue;
      }
      const auto [found, added] = index.try_emplace(block, static_cast<uint32_t>(distinct.size()));
      if (added) distinct.push_back(block);
      table.push_back(kv::BlockId{found->second});
    }
  }
  sequence.swapped = swap_->Save(*arena_, distinct);
  ReleaseBlocks(sequence);
  for (size_t i = 0; i < tables.size(); ++i) sequence.branches[i].blocks = std::move(tables[i]);
  NoteCopy(sequence, sequence.swapped.size(), absl::Now() - begin);
}

bool Engine::Impl::SwapIn(Sequence& sequence) {
  const absl::Time begin = absl::Now();
  // A prompt's table is whole before it is computed.
  Branch& trunk = sequence.trunk();
  const bool whole = sequence.branches.size() == 1 || sequence.fork_at > 0;
  const auto has = static_cast<uint32_t>(trunk.blocks.size());
  const uint32_t more = whole ? std::max(TableToAdmit(sequence), has) - has : 0;
  const auto saved = static_cast<uint32_t>(sequence.swapped.size());
  const auto own = Allocate(saved + more);
  if (!own.ok()) return false;
  swap_->Restore(*arena_, sequence.swapped, std::span(*own).first(saved));
  std::vector<bool> taken(saved, false);
  for (Branch& branch : sequence.branches) {
    for (uint32_t i = 0; i < branch.blocks.size(); ++i) {
      if (sequence.dropped(branch, i)) continue;
      const auto index = static_cast<uint32_t>(branch.blocks[i]);
      branch.blocks[i] = (*own)[index];
      if (taken[index]) pool_.Retain(branch.blocks[i], kv::Owner::kRequest);
      taken[index] = true;
    }
  }
  trunk.blocks.insert(trunk.blocks.end(), own->begin() + saved, own->end());
  sequence.holds_blocks = true;
  DropSwapped(sequence);
  NoteCopy(sequence, saved, absl::Now() - begin);
  return true;
}

void Engine::Impl::DropSwapped(Sequence& sequence) {
  if (!sequence.swapped.empty()) swap_->Drop(std::exchange(sequence.swapped, {}));
}

void Engine::Impl::NoteCopy(Sequence& sequence, size_t blocks, absl::Duration elapsed) {
  const uint64_t bytes = blocks * arena_->layout().BlockBytes();
  sequence.preemptions.swapped_bytes += bytes;
  counters_.swapped_bytes += bytes;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds <= 0) return;
  copy_rate_ += kCopyWeight * (static_cast<double>(bytes) / seconds - copy_rate_);
}

// Nothing can run, and nothing is on its way that would change it: the KV of
// all was converted and the swap area is full. The last one makes room.
void Engine::Impl::BreakDeadlock(absl::Time now) {
  const auto stuck = table_.Select([](const Sequence& s) { return s.state == State::kDecoding; });
  const uint32_t coming = table_.Count(
      [](const Sequence& s) { return s.state == State::kReserved || s.state == State::kPrompt; });
  if (stuck.size() < 2 || coming > 0) return;
  Sequence* last = *std::max_element(
      stuck.begin(), stuck.end(),
      [&](const Sequence* a, const Sequence* b) { return KeepRank(*a, now) < KeepRank(*b, now); });
  End(*last, absl::ResourceExhaustedError(
                 "the KV pool and the swap area are full, and this sequence's KV cannot be "
                 "computed again here; give the worker more --kv-memory or --kv-swap"));
}

}  // namespace baton::engine
