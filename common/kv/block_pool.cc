// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_pool.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"

namespace baton::kv {
namespace {

bool IsFree(const std::array<uint32_t, kOwnerCount>& counts) {
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
  for (BlockId block : taken) counts(block)[Index(owner)] = 1;
  held_[Index(owner)] += count;
  if (owner == Owner::kPrefixCache) cache_only_ += count;
  return taken;
}

void BlockPool::Retain(BlockId block, Owner owner) {
  Counts& holders = counts(block);
  assert(!IsFree(holders));
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
  if (IsFree(holders)) {
    free_.push_back(block);
  } else if (IsCacheOnly(holders)) {
    ++cache_only_;
    released_.push_back(block);
  }
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
    if (listed[id] != IsFree(holders_[id])) {
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
