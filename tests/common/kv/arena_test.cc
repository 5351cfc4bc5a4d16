// SPDX-License-Identifier: Apache-2.0
#include "common/kv/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/common/kv/three_layers.h"

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

TEST(KvArena, IsZeroedAndAlignedToTwoMiB) {
  const auto arena = KvArena::Create(ThreeLayers(), 5);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->Layer(BlockId{0}, 0)) % (2 << 20), 0u);
  for (uint32_t block = 0; block < 5; ++block) {
    for (uint32_t layer = 0; layer < 3; ++layer) {
      for (std::byte byte : arena->LayerSpan(BlockId{block}, layer)) EXPECT_EQ(byte, std::byte{0});
    }
  }
}

TEST(KvArena, LayersOfABlockFollowEachOther) {
  const auto arena = KvArena::Create(ThreeLayers(), 5);
  ASSERT_TRUE(arena.ok()) << arena.status();
  const KvLayout layout = ThreeLayers();
  EXPECT_EQ(arena->Layer(BlockId{4}, 2) - arena->Layer(BlockId{0}, 0),
            static_cast<std::ptrdiff_t>(4 * layout.BlockBytes() + 2 * layout.LayerBytes()));
  EXPECT_EQ(arena->LayerSpan(BlockId{1}, 1).size(), layout.LayerBytes());
}

TEST(KvArena, CopyOfABlockCoversAllItsLayersAndNoOtherBlock) {
  const auto arena = KvArena::Create(ThreeLayers(), 3);
  ASSERT_TRUE(arena.ok()) << arena.status();
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (std::byte& byte : arena->LayerSpan(BlockId{1}, layer)) byte = std::byte{7};
  }
  arena->CopyBlock(BlockId{1}, BlockId{2});
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (const std::byte byte : arena->LayerSpan(BlockId{2}, layer)) ASSERT_EQ(byte, std::byte{7});
    for (const std::byte byte : arena->LayerSpan(BlockId{0}, layer)) ASSERT_EQ(byte, std::byte{0});
  }
}

TEST(KvArena, DiscardedBlocksAreZeroAndTheirNeighboursAreNot) {
  const auto arena = KvArena::Create(ThreeLayers(), 100);
  ASSERT_TRUE(arena.ok()) << arena.status();
  for (uint32_t block = 0; block < 100; ++block) {
    std::memset(arena->Layer(BlockId{block}, 0), 7, arena->layout().BlockBytes());
  }
  const size_t bytes = arena->Discard(BlockId{10}, 50);
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, 50 * arena->layout().BlockBytes());
  for (const uint32_t block : {9u, 60u}) {
    for (uint32_t layer = 0; layer < 3; ++layer) {
      for (const std::byte byte : arena->LayerSpan(BlockId{block}, layer)) {
        ASSERT_EQ(byte, std::byte{7});
      }
    }
  }
  EXPECT_EQ(*arena->Layer(BlockId{30}, 0), std::byte{0});
  EXPECT_EQ(arena->Discard(BlockId{0}, 0), 0u);
}

// 9,600 bytes a block: 218.5 of them to a huge page of 2 MiB.
TEST(KvArena, HugePagesAreGivenBackWhole) {
  KvLayout layout = ThreeLayers();
  layout.layers = 3;
  layout.kv_heads = 1;
  layout.head_dim = 48;
  layout.type = KvType::kInt8;
  const size_t block = layout.BlockBytes();
  const auto arena = KvArena::Create(layout, 1000);
  ASSERT_TRUE(arena.ok()) << arena.status();
  constexpr size_t kHuge = size_t{2} << 20;
  for (const uint32_t keep : {0u, 1u, 200u, 218u, 219u, 500u, 1000u}) {
    const uint32_t filled = arena->FillHugePages(keep);
    EXPECT_GE(filled, keep);
    const size_t pages = (keep * block + kHuge - 1) / kHuge;
    EXPECT_LE(filled * block, pages * kHuge);
    EXPECT_TRUE(filled == 1000 || (filled + 1) * block > pages * kHuge) << keep;
  }
  for (uint32_t id = 0; id < 1000; ++id) std::memset(arena->Layer(BlockId{id}, 0), 7, block);
  const uint32_t kept = arena->FillHugePages(100);
  const size_t bytes = arena->Discard(BlockId{kept}, 1000 - kept);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(bytes % kHuge, 0u);
  EXPECT_EQ(*(arena->Layer(BlockId{0}, 0) + kHuge - 1), std::byte{7}) << "the page that is kept";
  EXPECT_EQ(*(arena->Layer(BlockId{0}, 0) + kHuge), std::byte{0});
}

TEST(KvArena, MoveLeavesOneOwner) {
  auto arena = KvArena::Create(ThreeLayers(), 2);
  ASSERT_TRUE(arena.ok()) << arena.status();
  std::byte* data = arena->Layer(BlockId{0}, 0);
  KvArena moved(*std::move(arena));
  EXPECT_EQ(moved.Layer(BlockId{0}, 0), data);
  std::memset(moved.Layer(BlockId{1}, 2), 1, moved.layout().LayerBytes());
}

TEST(KvArena, PoolBeyondMemoryIsRefusedWithTheArithmetic) {
  KvLayout layout = ThreeLayers();
  layout.layers = 1024;
  layout.head_dim = 4096;
  const auto arena = KvArena::Create(layout, 1u << 24);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(arena.status().message()),
              HasSubstr("16777216 blocks of 32 tokens x 1024 layers x 2 x 2 KV heads x head size "
                        "4096 x 2 bytes"));
  EXPECT_THAT(std::string(arena.status().message()), HasSubstr("MiB are available"));
}

TEST(KvArena, PoolBeyondTheAddressSpaceIsRefused) {
  KvLayout layout = ThreeLayers();
  layout.layers = 1u << 20;
  layout.kv_heads = 1u << 16;
  layout.head_dim = 1u << 14;
  const auto arena = KvArena::Create(layout, UINT32_MAX);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(KvArena, EmptyPoolIsRefused) {
  EXPECT_EQ(KvArena::Create(ThreeLayers(), 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvArena::Create(KvLayout(), 1).status().code(), absl::StatusCode::kInvalidArgument);
}

// Offsets past 4 GiB: only the last blocks of a sparse pool are touched.
TEST(KvArena, OffsetsDoNotWrapAtFourGiB) {
  KvLayout layout = ThreeLayers();
  layout.layers = 64;
  layout.head_dim = 256;
  const auto blocks = static_cast<uint32_t>((uint64_t{5} << 30) / layout.BlockBytes());
  const auto arena = KvArena::Create(layout, blocks);
  if (!arena.ok()) GTEST_SKIP() << arena.status();
  const BlockId last{blocks - 1};
  std::memset(arena->Layer(last, 63), 7, layout.LayerBytes());
  EXPECT_GT(arena->Layer(last, 63) - arena->Layer(BlockId{0}, 0), int64_t{4} << 30);
  EXPECT_EQ(*arena->Layer(BlockId{0}, 0), std::byte{0});
  EXPECT_EQ(*arena->Layer(last, 63), std::byte{7});
}

}  // namespace
}  // namespace baton::kv
