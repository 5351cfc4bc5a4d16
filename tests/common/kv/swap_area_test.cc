// SPDX-License-Identifier: Apache-2.0
#include "common/kv/swap_area.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/common/kv/three_layers.h"

namespace baton::kv {
namespace {

void Fill(const KvArena& arena, BlockId block, int value) {
  for (uint32_t layer = 0; layer < 3; ++layer) {
    std::ranges::fill(arena.LayerSpan(block, layer), static_cast<std::byte>(value + layer));
  }
}

bool Holds(const KvArena& arena, BlockId block, int value) {
  for (uint32_t layer = 0; layer < 3; ++layer) {
    const auto bytes = arena.LayerSpan(block, layer);
    const auto want = static_cast<std::byte>(value + layer);
    if (!std::ranges::all_of(bytes, [&](std::byte byte) { return byte == want; })) return false;
  }
  return true;
}

TEST(SwapArea, BlocksComeBackWholeWhereverTheyGo) {
  const auto arena = KvArena::Create(ThreeLayers(), 6);
  ASSERT_TRUE(arena.ok()) << arena.status();
  const auto swap = SwapArea::Create(ThreeLayers(), 4 * ThreeLayers().BlockBytes() + 1);
  ASSERT_TRUE(swap.ok()) << swap.status();
  EXPECT_EQ((*swap)->free_blocks(), 4u);
  EXPECT_EQ((*swap)->total_bytes(), 4 * ThreeLayers().BlockBytes());
  Fill(*arena, BlockId{1}, 10);
  Fill(*arena, BlockId{4}, 20);
  const std::vector<BlockId> blocks = {BlockId{4}, BlockId{1}};
  const auto saved = (*swap)->Save(*arena, blocks);
  EXPECT_EQ((*swap)->used_bytes(), 2 * ThreeLayers().BlockBytes());
  Fill(*arena, BlockId{1}, 99);
  Fill(*arena, BlockId{4}, 99);
  const std::vector<BlockId> others = {BlockId{0}, BlockId{5}};
  (*swap)->Restore(*arena, saved, others);
  EXPECT_TRUE(Holds(*arena, BlockId{0}, 20));
  EXPECT_TRUE(Holds(*arena, BlockId{5}, 10));
  EXPECT_TRUE(Holds(*arena, BlockId{1}, 99));
  (*swap)->Drop(saved);
  EXPECT_EQ((*swap)->free_blocks(), 4u);
}

TEST(SwapArea, OfLessThanABlockIsNone) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{ThreeLayers().BlockBytes() - 1}}) {
    const auto swap = SwapArea::Create(ThreeLayers(), bytes);
    ASSERT_TRUE(swap.ok());
    EXPECT_EQ(*swap, nullptr);
  }
}

TEST(SwapArea, MoreThanThereIsMemoryIsRefusedWithTheArithmetic) {
  const auto swap = SwapArea::Create(ThreeLayers(), UINT64_MAX);
  EXPECT_EQ(swap.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(swap.status().message()).find("MiB"), std::string::npos);
}

}  // namespace
}  // namespace baton::kv
