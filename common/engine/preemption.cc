// SPDX-License-Identifier: Apache-2.0
// Growing while blocks last, and who is put aside when they do not.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// What the rate of a copy counts against those before it.
constexpr double kCopyWeight = 0.25;

// Blocks of [0, computed) that positions to come see.
std::vector<kv::BlockId> LiveBlocks(const Sequence& sequence) {
  std::vector<kv::BlockId> live;
  for (uint32_t i = 0; i < kv::BlocksForTokens(sequence.computed); ++i) {
    if (!sequence.dropped(i)) live.push_back(sequence.blocks[i]);
  }
  return live;
}

bool HasBlockForNext(const Sequence& sequence) {
  return sequence.computed / kv::kBlockTokens < sequence.blocks.size();
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
  std::vector<Sequence*> growing = table_.Select([](const Sequence& sequence) {
    return sequence.state == State::kDecoding && !HasBlockForNext(sequence);
  });
  if (growing.size() > FreeBlocks()) {
    std::sort(growing.begin(), growing.end(), [&](const Sequence* a, const Sequence* b) {
      return KeepRank(*a, now) < KeepRank(*b, now);
    });
  }
  for (Sequence* sequence : growing) {
    while (sequence->state == State::kDecoding && !HasBlockForNext(*sequence)) {
      auto block = Allocate(1);
      if (block.ok()) {
        sequence->blocks.push_back(block->front());
      } else if (Sequence* victim = Victim(now)) {
        Preempt(*victim, now);
      } else {
        break;
      }
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
  return !sequence.spec.swap_only &&
         kv::BlocksForTokens(sequence.tokens.size() + 1) <= pool_.capacity();
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
         costs_.costs().Prompt(0, sequence.computed, limits_.chunk_tokens);
}

void Engine::Impl::Preempt(Sequence& sequence, absl::Time now) {
  ++counters_.preemptions;
  ++sequence.preemptions.count;
  sequence.preempted_at = now;
  if (sequence.computed > 0 && SwapIsCheaper(sequence)) {
    ++counters_.swaps;
    const absl::Time begin = absl::Now();
    sequence.swapped = swap_->Save(*arena_, LiveBlocks(sequence));
    NoteCopy(sequence, sequence.swapped.size(), absl::Now() - begin);
  } else {
    if (sequence.outputs() > 0) KeepPrefix(sequence);  // it may be there still
    sequence.once_computed = std::max(sequence.once_computed, sequence.computed);
    ReleaseBlocks(sequence);
    sequence.computed = sequence.dropped_end = 0;
  }
  ReleaseBlocks(sequence);
  sequence.blocks.clear();
  sequence.state = State::kPreempted;
  LogDebug("sequence put aside", {{"request_id", sequence.spec.request_id},
                                  {"tokens", sequence.tokens.size()},
                                  {"swapped_blocks", sequence.swapped.size()}});
}

// It has its blocks: goes on where it stood, or computes its KV again.
void Engine::Impl::Resume(Sequence& sequence) {
  const absl::Time begin = absl::Now();
  if (const size_t count = sequence.swapped.size(); count > 0) {
    swap_->Restore(*arena_, sequence.swapped, LiveBlocks(sequence));
    DropSwapped(sequence);
    NoteCopy(sequence, count, absl::Now() - begin);
  }
  sequence.preemptions.time += begin - sequence.preempted_at;
  const bool decoding = sequence.outputs() > 0 && sequence.remaining() == 1;
  sequence.state = decoding ? State::kDecoding : State::kPrompt;
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
