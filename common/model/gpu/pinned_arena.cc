// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/pinned_arena.h"

#include <algorithm>

#include "common/base/log.h"

namespace baton::model::gpu {

PinnedArena::PinnedArena(const kv::KvArena& arena, const dev::DeviceTable& table)
    : table_(table),
      data_(arena.Layer(kv::BlockId{0}, 0)),
      block_bytes_(arena.layout().BlockBytes()),
      bytes_(block_bytes_ * arena.blocks()),
      pinned_((bytes_ + kPieceBytes - 1) / kPieceBytes) {}

PinnedArena::~PinnedArena() {
  for (size_t piece = 0; piece < pinned_.size(); ++piece) {
    if (pinned_[piece]) table_.unpin(data_ + piece * kPieceBytes);
  }
}

PinnedArena::Range PinnedArena::PiecesOf(kv::BlockId first, uint32_t count) const {
  const size_t begin = static_cast<size_t>(first) * block_bytes_;
  return {begin / kPieceBytes, (begin + count * block_bytes_ + kPieceBytes - 1) / kPieceBytes};
}

size_t PinnedArena::PieceBytes(size_t piece) const {
  return std::min(kPieceBytes, bytes_ - piece * kPieceBytes);
}

void PinnedArena::Pin(kv::BlockId block) {
  const Range pieces = PiecesOf(block, 1);
  for (size_t piece = pieces.begin; piece < pieces.end && !refused_; ++piece) {
    if (pinned_[piece]) continue;
    if (table_.pin(data_ + piece * kPieceBytes, PieceBytes(piece))) {
      pinned_[piece] = true;
      pinned_bytes_ += PieceBytes(piece);
      continue;
    }
    refused_ = true;
    LogWarning("no more host memory can be pinned; KV blocks beyond move more slowly",
               {{"pinned_mib", pinned_bytes_ >> 20}, {"pool_mib", bytes_ >> 20}});
  }
}

void PinnedArena::Unpin(kv::BlockId first, uint32_t count) {
  const Range pieces = PiecesOf(first, count);
  for (size_t piece = pieces.begin; piece < pieces.end; ++piece) {
    if (!pinned_[piece]) continue;
    table_.unpin(data_ + piece * kPieceBytes);
    pinned_[piece] = false;
    pinned_bytes_ -= PieceBytes(piece);
    refused_ = false;
  }
}

}  // namespace baton::model::gpu
