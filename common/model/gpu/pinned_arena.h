// SPDX-License-Identifier: Apache-2.0
// Pins the host side of the KV pool, piece by piece as blocks there are moved: from
// and to pinned memory copies run at full speed and beside the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/kv/arena.h"
#include "kernels/cuda/api/device_table.h"

namespace baton::model::gpu {

namespace dev = ::baton::gpu;

// A piece is pinned when a block in it is copied first, so that memory that nobody
// uses stays untouched, and until it is discarded. Where the driver pins no more,
// copies of the rest go on from pageable memory, only slower.
//
// Thread safety: as the device's.
class PinnedArena final {
 public:
  // The table and, for Unpin and the destructor, the arena's mapping outlive it.
  PinnedArena(const kv::KvArena& arena, const dev::DeviceTable& table);
  ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  // Before `block` is copied from or to the device.
  void Pin(kv::BlockId block);
  // Before the memory of blocks [first, first + count) is given back: what a
  // device would read there afterwards are the old pages. No copy is under way.
  void Unpin(kv::BlockId first, uint32_t count);

  uint64_t pinned_bytes() const { return pinned_bytes_; }

  static constexpr size_t kPieceBytes = size_t{32} << 20;

 private:
  struct Range {
    size_t begin, end;  // of pieces
  };
  Range PiecesOf(kv::BlockId first, uint32_t count) const;
  size_t PieceBytes(size_t piece) const;

  const dev::DeviceTable& table_;
  std::byte* const data_;
  const size_t block_bytes_, bytes_;
  std::vector<bool> pinned_;  // [pieces]
  uint64_t pinned_bytes_ = 0;
  bool refused_ = false;  // the driver pins no more
};

}  // namespace baton::model::gpu
