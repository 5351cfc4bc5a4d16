// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::kv {
namespace {

bool NobodyHolds(const std::array<uint32_t, kOwnerCount>& counts) {
  return std::all_of(counts.begin(), counts.end(), [](uint32_t count) { return count == 0; });
}

bool IsCacheOnly(const std::array<uint32_t, kOwnerCount>& counts) {
  return counts[static_cast<size_t>(Owner::kPrefixCache)] > 0 &&
         counts[static_cast<size_t>(Owner::kRequest)] == 0 &&
         counts[static_cast<size_t>(Owner::kTransfer)] == 0;
}

}  // namespace

BlockPool::BlockPool(uint32_t capacity) : holders_(capacity) {
  free_.reserve(capacity);
  for (uint32_t id = capacity; id-- > 0;) free_.push_back(BlockId{id});
}

absl::StatusOr<std::vector<BlockId>> BlockPool::Allocate(uint32_t count, Owner owner) {
  if (count > free_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("need ", count, " KV blocks, ", free_.size(),
                                                     " of ", capacity(), " are free"));
  }
  std::vector<BlockId> taken(free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  for (BlockId block : taken) {
    counts(block)[Index(owner)] = 1;
    high_ = std::max(high_, static_cast<uint32_t>(block) + 1);
  }
  held_[Index(owner)] += count;
  if (owner == Owner::kPrefixCache) cache_only_ += count;
  return taken;
}

void BlockPool::Retain(BlockId block, Owner owner) {
  Counts& holders = counts(block);
  assert(!NobodyHolds(holders));
  if (owner != Owner::kPrefixCache && IsCacheOnly(holders)) --cache_only_;
  if (holders[Index(owner)]++ == 0) ++held_[Index(owner)];
}

void BlockPool::Release(BlockId block, Owner owner) {
  Counts& holders = counts(block);
  assert(holders[Index(owner)] > 0);
  const bool was_cache_only = IsCacheOnly(holders);
  if (--holders[Index(owner)] > 0) return;
  --held_[Index(owner)];
  if (was_cache_only) --cache_only_;
  if (NobodyHolds(holders)) {
    free_.push_back(block);
  } else if (IsCacheOnly(holders)) {
    ++cache_only_;
    released_.push_back(block);
  }
}

void BlockPool::PreferBelow(uint32_t bound) {
  // The stack's top is its end.
  std::stable_partition(free_.begin(), free_.end(),
                        [bound](BlockId block) { return static_cast<uint32_t>(block) >= bound; });
}

std::optional<BlockId> BlockPool::MoveBelow(BlockId block, uint32_t bound) {
  assert(!NobodyHolds(counts(block)) && !Holds(block, Owner::kTransfer));
  if (free_.empty() || static_cast<uint32_t>(free_.back()) >= bound) return std::nullopt;
  const BlockId to = free_.back();
  free_.pop_back();
  counts(to) = std::exchange(counts(block), {});
  high_ = std::max(high_, static_cast<uint32_t>(to) + 1);
  free_.insert(free_.begin(), block);  // the last to be handed out
  return to;
}

void BlockPool::ForgetHigh() {
  high_ = capacity();
  while (high_ > 0 && NobodyHolds(holders_[high_ - 1])) --high_;
}

bool BlockPool::IsFree(BlockId block) const {
  return NobodyHolds(holders_[static_cast<size_t>(block)]);
}

bool BlockPool::CacheOnly(BlockId block) const {
  return IsCacheOnly(holders_[static_cast<size_t>(block)]);
}

absl::Status BlockPool::CheckIntegrity() const {
  std::vector<bool> listed(capacity(), false);
  for (BlockId block : free_) {
    const auto id = static_cast<uint32_t>(block);
    if (listed[id]) return absl::InternalError(absl::StrCat("block ", id, " is free twice"));
    listed[id] = true;
  }
  uint32_t cache_only = 0;
  for (uint32_t id = 0; id < capacity(); ++id) {
    cache_only += IsCacheOnly(holders_[id]) ? 1 : 0;
    if (listed[id] != NobodyHolds(holders_[id])) {
      return absl::InternalError(
          absl::StrCat("block ", id, listed[id] ? " is free but held" : " is lost"));
    }
  }
  if (cache_only != cache_only_) {
    return absl::InternalError(absl::StrCat("the prefix cache alone holds ", cache_only,
                                            " blocks, counted are ", cache_only_));
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
