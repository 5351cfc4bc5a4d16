// SPDX-License-Identifier: Apache-2.0
// Gives memory of the pool back while streams run on.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "common/engine/impl.h"

namespace baton::engine {
namespace {

// Between two steps: some milliseconds' worth of copying.
constexpr size_t kMovesPerTurn = 8;

}  // namespace

void Engine::Impl::Trim(uint32_t keep) { trim_to_ = std::min(keep, pool_.capacity()); }

void Engine::Impl::TrimUnused(absl::Time now) {
  if (options_.kv_floor_blocks == 0) return;
  const uint32_t needed = pool_.capacity() - FreeBlocks();
  most_needed_ = std::max(most_needed_, needed);
  if (now < next_trim_) return;
  const bool first = next_trim_ == absl::InfinitePast();
  next_trim_ = now + options_.kv_return_after;
  // A quarter more than was needed, so that a steady load is left in peace.
  const uint32_t keep = std::max(options_.kv_floor_blocks, most_needed_ + most_needed_ / 4);
  most_needed_ = needed;
  if (!first && keep < pool_.high()) Trim(keep);
}

void Engine::Impl::TrimSome() {
  if (!trim_to_ || flight_) return;
  if (prefix_cache_ != nullptr) {
    prefix_cache_->MakeFree(std::min(pool_.capacity() - *trim_to_, FreeBlocks()));
  }
  // Huge pages are emptied or left alone; where there is but one, its pages are.
  uint32_t bound = arena_->FillHugePages(*trim_to_);
  if (bound >= pool_.high()) bound = *trim_to_;
  pool_.PreferBelow(bound);
  if (MoveBlocks(bound)) return;
  trim_to_.reset();
  Discard(bound, pool_.high());
  pool_.ForgetHigh();
}

bool Engine::Impl::MoveBlocks(uint32_t keep) {
  absl::flat_hash_map<kv::BlockId, kv::BlockId> moved;
  for (uint32_t id = keep; id < pool_.high() && moved.size() < kMovesPerTurn; ++id) {
    const kv::BlockId from{id};
    if (pool_.IsFree(from) || pool_.Holds(from, kv::Owner::kTransfer)) continue;
    const std::optional<kv::BlockId> to = pool_.MoveBelow(from, keep);
    if (!to) break;
    arena_->CopyBlock(from, *to);
    if (prefix_cache_ != nullptr) prefix_cache_->Moved(from, *to);
    moved[from] = *to;
  }
  if (moved.empty()) return false;
  for (Sequence* sequence : table_.Select([](const Sequence& s) { return s.holds_blocks; })) {
    for (Branch& branch : sequence->branches) {
      for (kv::BlockId& block : branch.blocks) {
        if (const auto found = moved.find(block); found != moved.end()) block = found->second;
      }
    }
  }
  counters_.blocks_moved += moved.size();
  return true;
}

void Engine::Impl::Discard(uint32_t begin, uint32_t end) {
  for (uint32_t id = begin; id <= end; ++id) {
    if (id < end && pool_.IsFree(kv::BlockId{id})) continue;
    if (id > begin) counters_.kv_bytes_returned += arena_->Discard(kv::BlockId{begin}, id - begin);
    begin = id + 1;
  }
}

}  // namespace baton::engine
