// SPDX-License-Identifier: Apache-2.0
// A second tier for KV blocks in host memory, behind the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/arena.h"
#include "common/kv/block_pool.h"

namespace baton::kv {

// Keeps copies of blocks whose sequences were put aside. Memory is taken as it
// is used, and not before.
//
// Thread safety: none; belongs to the thread that owns the pool.
class SwapArea final {
 public:
  // Null when `bytes` are less than one block. RESOURCE_EXHAUSTED with the
  // arithmetic when the memory cannot be had.
  static absl::StatusOr<std::unique_ptr<SwapArea>> Create(const KvLayout& layout, uint64_t bytes);

  uint32_t free_blocks() const { return pool_.free_blocks(); }
  uint32_t used_blocks() const { return pool_.capacity() - pool_.free_blocks(); }
  uint64_t used_bytes() const { return used_blocks() * arena_.layout().BlockBytes(); }
  uint64_t total_bytes() const { return pool_.capacity() * arena_.layout().BlockBytes(); }

  // Copies `blocks` of `arena` here; returns where to, in order.
  // REQUIRES: free_blocks() are enough; `arena` has the layout of Create.
  std::vector<BlockId> Save(const KvArena& arena, std::span<const BlockId> blocks);
  // Copies `saved` back, into `blocks`. REQUIRES: equal in number.
  void Restore(const KvArena& arena, std::span<const BlockId> saved,
               std::span<const BlockId> blocks) const;
  void Drop(std::span<const BlockId> saved);

 private:
  explicit SwapArea(KvArena arena) : arena_(std::move(arena)), pool_(arena_.blocks()) {}

  const KvArena arena_;
  BlockPool pool_;
};

}  // namespace baton::kv
