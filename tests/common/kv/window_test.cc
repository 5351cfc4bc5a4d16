// SPDX-License-Identifier: Apache-2.0
#include "common/kv/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace baton::kv {
namespace {

using ::testing::ElementsAre;
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

constexpr auto Ranges(TokenRange a, TokenRange b = {}) {
  return std::array<TokenRange, Window::kMostKeep>{a, b};
}

const Window kSparse[] = {
    {64, 32, 96},
    {32, 0, 64},
    {32, 0, 256},
    {128, 96, 160},
    {32, 0, 0, Ranges({96, 160})},
    {64, 32, 128, Ranges({64, 128}, {320, 640})},
    {32, 320, 64, Ranges({352, 384}, {384, 416})},
};

TEST(Window, StrideKeepsTheLastBlockOfEachAndRangesTheirs) {
  const Window window{.tokens = 64, .sinks = 32, .stride = 128, .keep = Ranges({160, 224})};
  EXPECT_TRUE(window.sparse());
  EXPECT_FALSE((Window{64, 32}.sparse()));
  std::vector<uint32_t> seen;
  for (uint32_t block = 0; block < 40; ++block) {
    if (window.SeesBlock(32 * 20 + 5, block)) seen.push_back(block);
  }
  EXPECT_THAT(seen, ElementsAre(0, 3, 5, 6, 7, 11, 15, 18, 19, 20));
  EXPECT_EQ(window.SeenBlocks(32 * 20 + 5), seen.size());
}

// Counts by formula are those by going through all blocks.
TEST(Window, CountsAreThoseOfTheBlocksThatAreSeen) {
  for (const Window& window : kSparse) {
    ASSERT_TRUE(CheckWindow(window).ok()) << CheckWindow(window);
    uint64_t most = 0;
    for (uint32_t position = 0; position < 1500; position += 7) {
      uint32_t seen = 0, kept = 0;
      const uint32_t own = position / kBlockTokens;
      for (uint32_t block = 0; block <= own; ++block) {
        seen += window.SeesBlock(position, block) ? 1 : 0;
        kept += window.Keeps(block) ? 1 : 0;
      }
      EXPECT_EQ(window.SeenBlocks(position), seen) << position;
      EXPECT_EQ(window.KeptBelow(own + 1), kept) << own;
      most = std::max<uint64_t>(most, seen);
      EXPECT_EQ(MostBlocks(window, 1, position + 1), most) << position;
      EXPECT_GE(window.Held(position + 1), std::min(position + 1, seen * kBlockTokens));
    }
  }
}

// What has once left is never seen again: its block may be given away.
TEST(Window, BlockThatLeavesSightStaysOut) {
  for (const Window& window : kSparse) {
    for (uint32_t block = 0; block < 40; ++block) {
      bool out = false;
      for (uint32_t position = block * kBlockTokens; position < 2000; ++position) {
        const bool sees = window.SeesBlock(position, block);
        ASSERT_FALSE(out && sees) << "block " << block << " at " << position;
        out = !sees;
      }
    }
  }
}

TEST(Window, RefusalOfStrideAndRangesNamesFieldAndValue) {
  const auto refusal = [](const Window& window) {
    return std::string(CheckWindow(window).message());
  };
  EXPECT_THAT(refusal({.stride = 64}), HasSubstr("stride is 64 and window is 0"));
  EXPECT_THAT(refusal({.keep = Ranges({32, 64})}), HasSubstr("need a window"));
  EXPECT_THAT(refusal({.tokens = 64, .stride = 33}), HasSubstr("stride is 33"));
  EXPECT_THAT(refusal({.tokens = 64, .stride = 32}), HasSubstr("must be 64 or more"));
  EXPECT_THAT(refusal({.tokens = 64, .keep = Ranges({32, 63})}), HasSubstr("keep[0] is 63"));
  EXPECT_THAT(refusal({.tokens = 64, .keep = Ranges({64, 64})}), HasSubstr("keep[0] is 64 to 64"));
  EXPECT_THAT(refusal({.tokens = 64, .sinks = 64, .keep = Ranges({32, 96})}),
              HasSubstr("must begin at 64"));
  EXPECT_THAT(refusal({.tokens = 64, .keep = Ranges({64, 96}, {32, 64})}),
              HasSubstr("keep[1] is 32 to 64"));
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
  std::vector<Window> windows = {{32, 0}, {64, 32}, {128, 96}, {32, 320}};
  windows.insert(windows.end(), std::begin(kSparse), std::end(kSparse));
  for (const Window& window : windows) {
    for (const uint32_t chunk : {1u, 2u, 31u, 32u, 33u, 100u}) {
      const uint64_t count = BlocksForWindow(window, chunk, 3000 + chunk);
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
      EXPECT_TRUE(tight_failed || chunk % 2 == 0 || window.sparse()) << chunk;
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
