// SPDX-License-Identifier: Apache-2.0
#include "common/kv/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

std::vector<BlockId> Blocks(uint64_t count) {
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < count; ++i) blocks.push_back(BlockId{100 + i});
  return blocks;
}

TEST(Window, SeesItsBlockTheOnesBeforeAndTheSinks) {
  const Window window{.tokens = 64, .sinks = 32};
  EXPECT_EQ(window.FirstBlock(0), 0u);
  EXPECT_EQ(window.FirstBlock(95), 0u);
  EXPECT_EQ(window.FirstBlock(96), 1u);
  EXPECT_EQ(window.FirstBlock(20'000), 623u);
  EXPECT_TRUE(window.SeesBlock(20'000, 0));
  EXPECT_FALSE(window.SeesBlock(20'000, 1));
  EXPECT_FALSE(window.SeesBlock(20'000, 622));
  EXPECT_TRUE(window.SeesBlock(20'000, 623));
  EXPECT_TRUE(window.SeesBlock(20'000, 625));
  EXPECT_FALSE(window.SeesBlock(20'000, 626)) << "the future";
}

TEST(Window, NoneSeesAll) {
  const Window all;
  EXPECT_FALSE(all.limited());
  EXPECT_TRUE(all.SeesBlock(1'000'000, 0));
  EXPECT_TRUE(all.SeesBlock(1'000'000, 31'250));
}

TEST(Window, RefusalNamesFieldAndValue) {
  EXPECT_TRUE(CheckWindow({}).ok());
  EXPECT_TRUE(CheckWindow({.tokens = 64, .sinks = 32}).ok());
  EXPECT_THAT(std::string(CheckWindow({.tokens = 65}).message()), HasSubstr("window is 65"));
  EXPECT_THAT(std::string(CheckWindow({.tokens = 64, .sinks = 4}).message()),
              HasSubstr("sinks is 4"));
  EXPECT_THAT(std::string(CheckWindow({.sinks = 32}).message()), HasSubstr("need a window"));
}

TEST(Window, BlocksAreThoseOfTheFormula) {
  EXPECT_EQ(BlocksForWindow({.tokens = 128, .sinks = 32}, 1), 1u + 4 + 1);
  EXPECT_EQ(BlocksForWindow({.tokens = 128, .sinks = 32}, 2), 1u + 4 + 2);
  EXPECT_EQ(BlocksForWindow({.tokens = 128, .sinks = 32}, 33), 1u + 4 + 2);
  EXPECT_EQ(BlocksForWindow({.tokens = 128, .sinks = 32}, 34), 1u + 4 + 3);
}

TEST(Window, BoundsWhatAnAnswerHoldsButNotThePrompt) {
  const Window window{.tokens = 128, .sinks = 32};
  EXPECT_EQ(MostBlocks(window, 1, 20'000), 6u);
  EXPECT_EQ(MostBlocks(window, 640, 20'000), 20u);
  EXPECT_EQ(MostBlocks(window, 1, 64), 2u);
  EXPECT_EQ(MostBlocks({}, 1, 20'000), 625u);
  EXPECT_EQ(window.Held(20'000), 192u);
  EXPECT_EQ(window.Held(100), 100u);
  EXPECT_EQ(Window{}.Held(20'000), 20'000u);
}

// Whatever the window and the chunks: the formula is enough, one block less is
// not, and what is seen is never given away.
TEST(RollingTable, FixedSetIsEnoughAndNoSeenBlockIsReused) {
  for (const Window window : {Window{32, 0}, Window{64, 32}, Window{128, 96}, Window{32, 320}}) {
    for (const uint32_t chunk : {1u, 2u, 31u, 32u, 33u, 100u}) {
      const uint64_t count = BlocksForWindow(window, chunk);
      RollingTable rolling(window, Blocks(count)), tight(window, Blocks(count - 1));
      bool tight_failed = false;
      std::vector<uint32_t> written;  // [block]: entry whose KV it holds
      written.resize(100 + count, UINT32_MAX);
      for (uint32_t first = 0; first < 3000; first += chunk) {
        ASSERT_TRUE(rolling.Extend(first, first + chunk).ok()) << first;
        tight_failed = tight_failed || !tight.Extend(first, first + chunk).ok();
        const auto& table = rolling.table();
        for (uint32_t p = first; p < first + chunk; ++p) {
          written[static_cast<uint32_t>(table[p / kBlockTokens])] = p / kBlockTokens;
        }
        for (uint32_t p = first; p < first + chunk; ++p) {
          for (uint32_t b = 0; b <= p / kBlockTokens; ++b) {
            if (!window.SeesBlock(p, b)) continue;
            ASSERT_EQ(written[static_cast<uint32_t>(table[b])], b) << "position " << p;
          }
        }
      }
      // Odd chunks begin at every place in a block, the worst one too.
      EXPECT_TRUE(tight_failed || chunk % 2 == 0) << chunk;
      const std::set<BlockId> used(rolling.table().begin(), rolling.table().end());
      EXPECT_LE(used.size(), count);
    }
  }
}

TEST(RollingTable, ChunkBeyondTheSetIsRefusedAndChangesNothing) {
  RollingTable rolling({.tokens = 32, .sinks = 0}, Blocks(3));
  ASSERT_TRUE(rolling.Extend(0, 40).ok());
  const auto before = rolling.table();
  EXPECT_EQ(rolling.Extend(40, 200).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(rolling.table(), before);
  EXPECT_TRUE(rolling.Extend(40, 96).ok());
}

TEST(RollingTable, WithoutAWindowNothingIsReused) {
  RollingTable table({}, Blocks(4));
  EXPECT_TRUE(table.Extend(0, 128).ok());
  EXPECT_EQ(table.Extend(128, 129).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton::kv
