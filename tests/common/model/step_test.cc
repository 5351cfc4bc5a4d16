// SPDX-License-Identifier: Apache-2.0
#include "common/model/step.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace baton::model {
namespace {

constexpr uint32_t kMaxTokens = 1024;

checkpoint::ModelConfig Config() {
  checkpoint::ModelConfig config;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocabulary = 100;
  config.context = 4096;
  return config;
}

struct Input {
  explicit Input(uint32_t first_position, uint32_t count, uint32_t first_block = 0)
      : tokens(count, 1),
        blocks(kv::BlocksForTokens(first_position + count)),
        first(first_position) {
    for (uint32_t b = 0; b < blocks.size(); ++b) blocks[b] = kv::BlockId{first_block + b};
  }
  Slice slice(LogitRows rows = LogitRows::kNone) const { return {tokens, first, blocks, rows}; }

  std::vector<TokenId> tokens;
  std::vector<kv::BlockId> blocks;
  uint32_t first;
};

TEST(PlanStep, ListsRowsAndWantedLogitsInSliceOrder) {
  const Input a(10, 3), b(0, 2), c(7, 1);
  const std::vector<Slice> slices = {a.slice(LogitRows::kLast), b.slice(LogitRows::kAll),
                                     c.slice()};
  const auto step = PlanStep(slices, Config(), kMaxTokens, 2);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->first_row, (std::vector<uint32_t>{0, 3, 5}));
  EXPECT_EQ(step->rows[2].position, 12u);
  EXPECT_EQ(step->rows[4].position, 1u);
  EXPECT_EQ(step->logit_rows, (std::vector<uint32_t>{2, 3, 4}));
}

TEST(PlanStep, ZeroesOnlyBlocksThatItStartsAndDoesNotFill) {
  const Input starts_third(40, 30, 10);  // positions 40 to 69: block 2 from slot 0
  const Input continues(33, 5, 20);      // block 1, started before
  const Input fills(0, 64, 30);
  const Input first_token(96, 1, 40);
  const std::vector<Slice> slices = {starts_third.slice(), continues.slice(), fills.slice(),
                                     first_token.slice()};
  const auto step = PlanStep(slices, Config(), kMaxTokens, 2);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->fresh_blocks, (std::vector<kv::BlockId>{kv::BlockId{12}, kv::BlockId{43}}));
}

TEST(PlanStep, ChunksShareTilesEvenlyOverThreads) {
  for (uint32_t threads : {1u, 2u, 3u, 8u}) {
    for (uint32_t rows : {48u, 100u, 192u, 512u, 1000u}) {
      const Input prompt(0, rows);
      const auto step = PlanStep({{prompt.slice()}}, Config(), kMaxTokens, threads);
      ASSERT_TRUE(step.ok());
      if (!step->by_rows) continue;
      EXPECT_EQ(step->chunks % threads, 0u) << rows << " rows, " << threads << " threads";
      EXPECT_LE(step->chunks, step->tiles.count());
      if (threads > 1 && rows == 1000) {
        EXPECT_GT(step->chunks, threads);
      }
    }
  }
}

// (slice, kv head, row, segment) -> how often an item covers it. `group`: query
// heads of a KV head.
std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, int> Coverage(const Step& step,
                                                                           uint32_t group) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, int> seen;
  for (const AttentionItem& item : step.attention) {
    for (uint32_t i = item.first; i < item.first + item.rows; ++i) {
      uint32_t slice = item.slice, row = i;
      while (row >= step.slices[slice].tokens.size() * group) {  // of the next slice
        row -= static_cast<uint32_t>(step.slices[slice].tokens.size()) * group;
        ++slice;
      }
      for (uint32_t s = item.segment_begin; s < item.segment_end; ++s) {
        ++seen[{slice, item.kv_head, row, s}];
      }
    }
  }
  return seen;
}

// Every row of every head has each segment up to its own position once.
void ExpectCovered(const Step& step, const checkpoint::ModelConfig& config) {
  const uint32_t group = config.heads / config.kv_heads;
  const auto seen = Coverage(step, group);
  for (uint32_t s = 0; s < step.slices.size(); ++s) {
    for (uint32_t i = 0; i < step.slices[s].tokens.size() * group; ++i) {
      const uint32_t position = step.slices[s].first_position + i / group;
      for (uint32_t h = 0; h < config.kv_heads; ++h) {
        for (uint32_t segment = 0; segment <= position / 256; ++segment) {
          ASSERT_EQ(seen.count({s, h, i, segment}), 1u);
        }
      }
    }
  }
  for (const auto& [key, count] : seen) ASSERT_EQ(count, 1);
}

// What merges fold: every partial row once, and of several segments first alone.
void ExpectFolded(const Step& step) {
  std::map<size_t, uint32_t> segments;  // by partial row
  for (const AttentionItem& item : step.attention) {
    if (item.partial == AttentionItem::kWhole) continue;
    for (uint32_t r = 0; r < item.rows; ++r) {
      const bool fresh =
          segments.emplace(item.partial + r, item.segment_end - item.segment_begin).second;
      ASSERT_TRUE(fresh);
    }
  }
  ASSERT_EQ(segments.size(), step.partial_rows);
  for (const MergeItem& merge : step.merges) {
    for (size_t i = 0; i < merge.parts.size(); ++i) {
      for (uint32_t r = 0; r < merge.rows; ++r) {
        const auto found = segments.find(merge.parts[i] + r);
        ASSERT_TRUE(found != segments.end());
        if (i > 0) {
          ASSERT_EQ(found->second, 1u);
        }
        segments.erase(found);
      }
    }
  }
  EXPECT_TRUE(segments.empty());
}

TEST(PlanStep, AttentionCoversEveryRowHeadAndVisibleSegmentOnce) {
  const Input decode(1500, 1), prefill(200, 100, 100), short_one(0, 5, 200);
  for (const std::vector<Slice>& slices : {std::vector<Slice>{decode.slice()},
                                           {prefill.slice()},
                                           {short_one.slice()},
                                           {decode.slice(), prefill.slice(), short_one.slice()}}) {
    for (uint32_t threads : {1u, 2u, 8u}) {
      const auto step = PlanStep(slices, Config(), kMaxTokens, threads);
      ASSERT_TRUE(step.ok());
      ExpectCovered(*step, Config());
      ExpectFolded(*step);
    }
  }
}

TEST(PlanStep, SplitsALoneLongContextOverThreads) {
  const Input decode(2000, 1);
  const std::vector<Slice> slices = {decode.slice()};
  const auto step = PlanStep(slices, Config(), kMaxTokens, 2);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->attention.size(), 2u * 8);  // KV heads x segments
  EXPECT_EQ(step->merges.size(), 2u);
  ExpectFolded(*step);
}

// `count` slices of one token whose first `shared` blocks are those of the first,
// at positions one apart.
std::vector<Input> Forks(uint32_t position, uint32_t count, uint32_t shared) {
  std::vector<Input> forks;
  for (uint32_t i = 0; i < count; ++i) {
    Input& fork = forks.emplace_back(position + i, 1, 1000 * i);
    std::copy_n(forks.front().blocks.begin(), shared, fork.blocks.begin());
  }
  return forks;
}

uint32_t TilesOfSegment(const Step& step, uint32_t segment) {
  uint32_t tiles = 0;
  for (const AttentionItem& item : step.attention) {
    if (item.segment_begin <= segment && segment < item.segment_end) ++tiles;
  }
  return tiles;
}

TEST(PlanStep, SlicesThatShareBlocksReadThemTogether) {
  const Input other(700, 1, 90000);
  for (uint32_t threads : {1u, 2u, 8u}) {
    for (uint32_t count : {2u, 8u, 40u}) {
      const auto forks = Forks(1020, count, 25);  // 3 segments and one block
      std::vector<Slice> slices = {other.slice()};
      for (const Input& fork : forks) slices.push_back(fork.slice());
      slices.push_back(other.slice());
      const auto step = PlanStep(slices, Config(), kMaxTokens, threads);
      ASSERT_TRUE(step.ok());
      ExpectCovered(*step, Config());
      ExpectFolded(*step);
      const uint32_t chunks = (count * 3 + 47) / 48, heads = 2, others = 2 * heads;
      EXPECT_EQ(TilesOfSegment(*step, 0), heads * chunks + others) << count << " forks";
      EXPECT_EQ(TilesOfSegment(*step, 3), heads * count) << count << " forks";
    }
  }
}

TEST(PlanStep, SlicesThatShareLessThanASegmentReadItAlone) {
  const auto forks = Forks(600, 3, 7);
  const std::vector<Slice> slices = {forks[0].slice(), forks[1].slice(), forks[2].slice()};
  const auto step = PlanStep(slices, Config(), kMaxTokens, 1);
  ASSERT_TRUE(step.ok());
  ExpectCovered(*step, Config());
  EXPECT_TRUE(step->merges.empty());
}

// What they share is whole for each: a segment that one of them is still in is not.
TEST(PlanStep, ASegmentThatIsNotFullIsNotShared) {
  const auto forks = Forks(500, 2, 16);  // both segments, in the same blocks
  const std::vector<Slice> slices = {forks[0].slice(), forks[1].slice()};
  const auto step = PlanStep(slices, Config(), kMaxTokens, 1);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(TilesOfSegment(*step, 0), 2u);
  EXPECT_EQ(TilesOfSegment(*step, 1), 2u * 2);
}

TEST(PlanStep, RefusesWhatModelForwardDoesNotAllow) {
  const auto code = [](const Input& input) {
    const std::vector<Slice> slices = {input.slice()};
    return PlanStep(slices, Config(), kMaxTokens, 1).status();
  };
  EXPECT_EQ(PlanStep({}, Config(), kMaxTokens, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Input(0, 0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Input(0, kMaxTokens + 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(code(Input(4095, 1)).ok());
  EXPECT_EQ(code(Input(4096, 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Input(UINT32_MAX, 1)).code(), absl::StatusCode::kInvalidArgument);
  Input outside(0, 3);
  outside.tokens[1] = 100;
  EXPECT_EQ(code(outside).code(), absl::StatusCode::kInvalidArgument);
  Input few_blocks(60, 5);
  few_blocks.blocks.pop_back();
  EXPECT_EQ(code(few_blocks).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::model
