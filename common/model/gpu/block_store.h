// SPDX-License-Identifier: Apache-2.0
// The KV pool in GPU memory: a copy of the arena's blocks, of which one side or
// the other is valid.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/arena.h"
#include "common/kv/block_mirror.h"
#include "common/model/gpu/device.h"
#include "common/model/gpu/pinned_arena.h"

namespace baton::model::gpu {

// Blocks move when the other side needs them: to the GPU before a step that
// reads what the host wrote (a hand-off, a swap), to the host before it is read
// there, through pinned memory. What a step writes stays on the GPU. The arena outlives
// the object. Thread safety: none.
class BlockStore final : public kv::BlockMirror {
 public:
  static absl::StatusOr<std::unique_ptr<BlockStore>> Create(const kv::KvArena& arena,
                                                            const Device& device);

  // Makes blocks valid on the GPU that a step reads or writes; `written`: from
  // the step on, not valid on the host. Started on the stream.
  void BeforeStep(const kv::KvArena& arena, std::span<const kv::BlockId> read,
                  std::span<const kv::BlockId> written);

  void BeforeHostReads(const kv::KvArena& arena, std::span<const kv::BlockId> blocks) override;
  void AfterHostWrites(std::span<const kv::BlockId> blocks) override;
  void Copy(const kv::KvArena& arena, kv::BlockId from, kv::BlockId to) override;
  void BeforeDiscard(kv::BlockId first, uint32_t count) override { pins_.Unpin(first, count); }

  std::byte* data() const { return pool_.data(); }
  size_t block_bytes() const { return block_bytes_; }
  uint64_t bytes() const { return pool_.bytes(); }

 private:
  enum class Valid : uint8_t { kHost, kDevice, kBoth };

  BlockStore(const Device& device, const kv::KvArena& arena, Buffer pool, Buffer indices)
      : device_(device),
        pins_(arena, device.table()),
        pool_(std::move(pool)),
        indices_(std::move(indices)),
        block_bytes_(arena.layout().BlockBytes()),
        valid_(arena.blocks(), Valid::kHost) {}

  const Device& device_;
  PinnedArena pins_;
  const Buffer pool_;
  const Buffer indices_;  // of the block of a copy, and where it goes
  const size_t block_bytes_;
  std::vector<Valid> valid_;
};

}  // namespace baton::model::gpu
