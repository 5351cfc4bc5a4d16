// SPDX-License-Identifier: Apache-2.0
// Blocks of an arena that have their home in another memory, such as a GPU's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/block_pool.h"
#include "common/kv/device_pool.h"

namespace baton::kv {

class KvArena;

// Bytes of blocks that went from one memory to the other so far.
struct MirrorTraffic {
  uint64_t to_arena = 0, from_arena = 0;
};

// Whoever touches an arena's bytes says so before and after; between, they are
// as in the other memory. All calls on the thread that runs the model, but for pool
// and traffic, which any thread may make.
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

  // The other memory, where other processes can map it; else null.
  virtual const DevicePool* pool() const { return nullptr; }
  // REQUIRES of the next two: pool().
  // Makes what the blocks hold complete in the pool, for others to read; fills in
  // the CRC-32C of each [block][layer]. INTERNAL: the device failed.
  virtual absl::Status BeforePeerReads(const KvArena& arena, std::span<const BlockId> blocks,
                                       std::vector<uint32_t>& checksums) = 0;
  // KV has landed in the blocks: where `in_pool` is true [block][layer], in the
  // pool, else in the arena.
  virtual void AfterLanding(const KvArena& arena, std::span<const BlockId> blocks,
                            const std::vector<bool>& in_pool) = 0;
  virtual MirrorTraffic traffic() const = 0;
};

}  // namespace baton::kv
