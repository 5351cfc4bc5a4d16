// SPDX-License-Identifier: Apache-2.0
// The bytes of a worker's KV blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/kv/block_mirror.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"

namespace baton::kv {

// One anonymous mapping, [block][layer][K | V][kv head][slice], aligned to
// 2 MiB, zeroed, with huge pages where the kernel grants them.
//
// Thread safety: the object is immutable; who may touch which bytes is settled
// by who holds the block (see BlockPool).
class KvArena final {
 public:
  // RESOURCE_EXHAUSTED with the arithmetic when the memory cannot be had.
  static absl::StatusOr<KvArena> Create(const KvLayout& layout, uint32_t blocks);

  KvArena(KvArena&& other) noexcept;
  KvArena& operator=(KvArena&& other) noexcept;
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;
  ~KvArena();

  const KvLayout& layout() const { return layout_; }
  uint32_t blocks() const { return blocks_; }

  // K then V of all heads of one block in one layer; layout().LayerBytes().
  std::byte* Layer(BlockId block, uint32_t layer) const {
    return data_ + static_cast<size_t>(block) * block_bytes_ + layer * layer_bytes_;
  }
  std::span<std::byte> LayerSpan(BlockId block, uint32_t layer) const {
    return {Layer(block, layer), layer_bytes_};
  }

  // For models that keep blocks elsewhere (BlockMirror): outlives the arena's use, not
  // the arena. Without one the next two do nothing.
  void SetMirror(BlockMirror* mirror) { mirror_ = mirror; }
  // On the model's thread: before bytes of the blocks are read through Layer,
  // and after they were written so (also by another thread).
  void BeforeHostReads(std::span<const BlockId> blocks) const {
    if (mirror_ != nullptr) mirror_->BeforeHostReads(*this, blocks);
  }
  void AfterHostWrites(std::span<const BlockId> blocks) const {
    if (mirror_ != nullptr) mirror_->AfterHostWrites(blocks);
  }

  // The blocks in the memory of a GPU that other processes can map; else null.
  const DevicePool* pool() const { return mirror_ == nullptr ? nullptr : mirror_->pool(); }
  // As of BlockMirror, on the model's thread. REQUIRES: pool().
  absl::Status BeforePeerReads(std::span<const BlockId> blocks,
                               std::vector<uint32_t>& checksums) const {
    return mirror_->BeforePeerReads(*this, blocks, checksums);
  }
  // KV has landed in the blocks: in the pool where `in_pool` [block][layer] is true,
  // else in the arena; empty: all of it in the arena.
  void AfterLanding(std::span<const BlockId> blocks, const std::vector<bool>& in_pool) const {
    if (in_pool.empty()) return AfterHostWrites(blocks);
    mirror_->AfterLanding(*this, blocks, in_pool);
  }
  // Any thread.
  MirrorTraffic mirror_traffic() const {
    return mirror_ == nullptr ? MirrorTraffic{} : mirror_->traffic();
  }

  // Copies all layers of `from` to `to`: what copy-on-write is made of.
  // REQUIRES: the caller may read the one and write the other.
  void CopyBlock(BlockId from, BlockId to) const;

  // Gives the memory of `count` blocks from `first` on back to the system, but
  // for pages that other blocks share; what was in them is lost, and they take
  // memory again once written. Where they fill huge pages these alone: of a huge
  // page that is given back in part the kernel keeps all until it splits it.
  // Returns the bytes. REQUIRES: nobody holds them.
  size_t Discard(BlockId first, uint32_t count) const;
  // How many blocks, `blocks` or more, lie in the huge pages that the first
  // `blocks` need: what is kept to give all huge pages behind back whole.
  uint32_t FillHugePages(uint32_t blocks) const;

 private:
  KvArena(const KvLayout& layout, uint32_t blocks, std::byte* data, size_t mapped_bytes);

  KvLayout layout_;
  uint32_t blocks_ = 0;
  std::byte* data_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t block_bytes_ = 0;
  size_t layer_bytes_ = 0;
  BlockMirror* mirror_ = nullptr;
};

}  // namespace baton::kv
