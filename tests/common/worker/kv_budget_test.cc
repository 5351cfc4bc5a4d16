// SPDX-License-Identifier: Apache-2.0
#include "common/worker/kv_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::worker {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// One block: 2 layers x 2 heads x 2 x 32 tokens x 64 x 2 bytes = 32 KiB.
kv::KvLayout Layout() {
  kv::KvLayout layout;
  layout.layers = 2;
  layout.kv_heads = 2;
  layout.head_dim = 64;
  layout.type = kv::KvType::kBf16;
  return layout;
}

TEST(PlanKvBlocks, TokensRoundUpToBlocks) {
  EXPECT_EQ(*PlanKvBlocks({.tokens = 33, .memory = ""}, Layout(), 4096, kMiB), 2);
}

TEST(PlanKvBlocks, MemoryRoundsDownToBlocks) {
  EXPECT_EQ(*PlanKvBlocks({.tokens = {}, .memory = "100KiB"}, Layout(), 4096, kMiB), 3);
}

TEST(PlanKvBlocks, DefaultIsAQuarterOfFreeMemory) {
  EXPECT_EQ(*PlanKvBlocks({}, Layout(), 4096, 64 * kMiB), 512);
}

TEST(PlanKvBlocks, DefaultHoldsAtMost64Contexts) {
  EXPECT_EQ(*PlanKvBlocks({}, Layout(), 320, uint64_t{1} << 40), 640);
}

TEST(PlanKvBlocks, WhatDoesNotFitIsRefusedWithTheArithmetic) {
  const auto blocks = PlanKvBlocks({.tokens = 3200, .memory = ""}, Layout(), 4096, 2 * kMiB);
  EXPECT_EQ(blocks.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(blocks.status().message()),
              ::testing::AllOf(::testing::HasSubstr("100 blocks x 32768 bytes = 3 MiB"),
                               ::testing::HasSubstr("2 MiB")));
}

TEST(PlanKvBlocks, SizesThatHoldNothingOrOverflowAreRefused) {
  EXPECT_EQ(PlanKvBlocks({.tokens = 0, .memory = ""}, Layout(), 64, kMiB).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanKvBlocks({.tokens = UINT64_MAX, .memory = ""}, Layout(), 64, kMiB).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanKvBlocks({.tokens = {}, .memory = "1KiB"}, Layout(), 64, kMiB).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanKvBlocks({}, Layout(), 64, 1024).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PlanKvBlocks, ShareOfFreeMemory) {
  EXPECT_EQ(*PlanKvBlocks({.tokens = {}, .memory = "50%"}, Layout(), 4096, 2 * kMiB), 31);
  for (const char* text : {"0%", "101%", "-1%", "%", "half%"}) {
    EXPECT_THAT(
        std::string(
            PlanKvBlocks({.tokens = {}, .memory = text}, Layout(), 4096, kMiB).status().message()),
        ::testing::AllOf(::testing::HasSubstr("--kv-memory"), ::testing::HasSubstr(text)));
  }
}

TEST(PlanFloorBlocks, IsWithinThePoolAndAllOfItByDefault) {
  EXPECT_EQ(*PlanFloorBlocks("", Layout(), 100, kMiB), 0u);
  EXPECT_EQ(*PlanFloorBlocks("64KiB", Layout(), 100, kMiB), 2u);
  EXPECT_EQ(*PlanFloorBlocks("1KiB", Layout(), 100, kMiB), 1u);
  EXPECT_EQ(*PlanFloorBlocks("1GiB", Layout(), 100, kMiB), 100u);
  EXPECT_EQ(*PlanFloorBlocks("10%", Layout(), 100, 10 * kMiB), 31u);
  EXPECT_THAT(std::string(PlanFloorBlocks("much", Layout(), 100, kMiB).status().message()),
              ::testing::HasSubstr("--kv-floor"));
}

TEST(PlanSwapBytes, DefaultIsModestAndBadTextIsQuoted) {
  EXPECT_EQ(PlanSwapBytes("", uint64_t{64} << 30).value(), 256 * kMiB);
  EXPECT_EQ(PlanSwapBytes("", 80 * kMiB).value(), 10 * kMiB);
  EXPECT_EQ(PlanSwapBytes("0", kMiB).value(), 0u);
  EXPECT_EQ(PlanSwapBytes("1GiB", kMiB).value(), 1024 * kMiB);
  EXPECT_THAT(std::string(PlanSwapBytes("lots", kMiB).status().message()),
              ::testing::AllOf(::testing::HasSubstr("--kv-swap"), ::testing::HasSubstr("lots")));
}

}  // namespace
}  // namespace baton::worker
