// SPDX-License-Identifier: Apache-2.0
#include "common/kv/swap_area.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"

namespace baton::kv {
namespace {

void CopyBlock(const KvArena& from, BlockId source, const KvArena& to, BlockId target) {
  std::memcpy(to.Layer(target, 0), from.Layer(source, 0), from.layout().BlockBytes());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SwapArea>> SwapArea::Create(const KvLayout& layout, uint64_t bytes) {
  const uint64_t blocks = bytes / std::max<size_t>(layout.BlockBytes(), 1);
  if (blocks == 0) return nullptr;
  const auto most = uint64_t{std::numeric_limits<uint32_t>::max()};
  BATON_ASSIGN_OR_RETURN(KvArena arena,
                         KvArena::Create(layout, static_cast<uint32_t>(std::min(blocks, most))));
  return std::unique_ptr<SwapArea>(new SwapArea(std::move(arena)));
}

std::vector<BlockId> SwapArea::Save(const KvArena& arena, std::span<const BlockId> blocks) {
  auto saved = pool_.Allocate(static_cast<uint32_t>(blocks.size()), Owner::kRequest);
  assert(saved.ok());
  arena.BeforeHostReads(blocks);
  for (size_t i = 0; i < blocks.size(); ++i) CopyBlock(arena, blocks[i], arena_, (*saved)[i]);
  return *std::move(saved);
}

void SwapArea::Restore(const KvArena& arena, std::span<const BlockId> saved,
                       std::span<const BlockId> blocks) const {
  assert(saved.size() == blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) CopyBlock(arena_, saved[i], arena, blocks[i]);
  arena.AfterHostWrites(blocks);
}

void SwapArea::Drop(std::span<const BlockId> saved) {
  for (const BlockId block : saved) pool_.Release(block, Owner::kRequest);
}

}  // namespace baton::kv
