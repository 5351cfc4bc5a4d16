// SPDX-License-Identifier: Apache-2.0
// Blocks of an arena that have their home in another memory, such as a GPU's.
#pragma once

#include <cstdint>
#include <span>

#include "common/kv/block_pool.h"

namespace baton::kv {

class KvArena;

// Whoever touches an arena's bytes says so before and after; between, they are
// as in the other memory. All calls on the thread that runs the model.
class BlockMirror {
 public:
  virtual ~BlockMirror() = default;
  // Brings what the blocks hold into the arena. What cannot be brought becomes
  // NaN patterns, which every reader notices.
  virtual void BeforeHostReads(const KvArena& arena, std::span<const BlockId> blocks) = 0;
  // The bytes of the blocks in the arena are the valid ones now.
  virtual void AfterHostWrites(std::span<const BlockId> blocks) = 0;
  virtual void Copy(const KvArena& arena, BlockId from, BlockId to) = 0;
  // The memory of these blocks in the arena is about to be given back.
  virtual void BeforeDiscard(BlockId first, uint32_t count) = 0;
};

}  // namespace baton::kv
