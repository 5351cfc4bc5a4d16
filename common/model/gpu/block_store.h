// SPDX-License-Identifier: Apache-2.0
// The KV pool in GPU memory: a copy of the arena's blocks, of which one side or
// the other is valid. Other processes can map it where the device supports that.
#pragma once

#include <atomic>
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
// the object. Thread safety: as kv::BlockMirror says.
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

  const kv::DevicePool* pool() const override { return shared_.valid() ? &exported_ : nullptr; }
  absl::Status BeforePeerReads(const kv::KvArena& arena, std::span<const kv::BlockId> blocks,
                               std::vector<uint32_t>& checksums) override;
  void AfterLanding(const kv::KvArena& arena, std::span<const kv::BlockId> blocks,
                    const std::vector<bool>& in_pool) override;
  kv::MirrorTraffic traffic() const override { return {to_arena_, from_arena_}; }

  std::byte* data() const { return shared_.valid() ? shared_.data() : private_.data(); }
  size_t block_bytes() const { return block_bytes_; }
  uint64_t bytes() const { return shared_.valid() ? shared_.bytes() : private_.bytes(); }

 private:
  enum class Valid : uint8_t { kHost, kDevice, kBoth };

  BlockStore(const Device& device, const kv::KvArena& arena)
      : device_(device),
        pins_(arena, device.table()),
        block_bytes_(arena.layout().BlockBytes()),
        valid_(arena.blocks(), Valid::kHost) {}

  absl::Status Allocate(const kv::KvArena& arena);
  std::byte* Place(kv::BlockId block) const {
    return data() + static_cast<size_t>(block) * block_bytes_;
  }
  // Started on the stream.
  void CopyIn(std::byte* to, const std::byte* from, size_t bytes);
  void MakeValidOnDevice(const kv::KvArena& arena, std::span<const kv::BlockId> blocks);

  const Device& device_;
  PinnedArena pins_;
  const size_t block_bytes_;
  SharedBuffer shared_;  // the pool; where the device cannot share, the next
  Buffer private_;
  kv::DevicePool exported_;
  Buffer indices_;    // of the block of a copy, and where it goes
  Buffer checksums_;  // pinned: of a launch
  std::atomic<uint64_t> to_arena_{0}, from_arena_{0};
  std::vector<Valid> valid_;
};

}  // namespace baton::model::gpu
