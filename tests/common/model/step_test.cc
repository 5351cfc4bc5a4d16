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

// (slice, kv head, row, segment) -> how often an item covers it.
std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, int> Coverage(const Step& step) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, int> seen;
  for (const AttentionItem& item : step.attention) {
    for (uint32_t row = item.first; row < item.first + item.rows; ++row) {
      for (uint32_t s = item.segment_begin; s < item.segment_end; ++s) {
        ++seen[{item.slice, item.kv_head, row, s}];
      }
    }
  }
  return seen;
}

TEST(PlanStep, AttentionCoversEveryRowHeadAndVisibleSegmentOnce) {
  const checkpoint::ModelConfig config = Config();
  const uint32_t group = config.heads / config.kv_heads;
  const Input decode(1500, 1), prefill(200, 100), short_one(0, 5);
  for (const std::vector<Slice>& slices : {std::vector<Slice>{decode.slice()},
                                           {prefill.slice()},
                                           {short_one.slice()},
                                           {decode.slice(), prefill.slice(), short_one.slice()}}) {
    for (uint32_t threads : {1u, 2u, 8u}) {
      const auto step = PlanStep(slices, config, kMaxTokens, threads);
      ASSERT_TRUE(step.ok());
      const auto seen = Coverage(*step);
      for (uint32_t s = 0; s < slices.size(); ++s) {
        for (uint32_t i = 0; i < slices[s].tokens.size() * group; ++i) {
          const uint32_t position = slices[s].first_position + i / group;
          for (uint32_t h = 0; h < config.kv_heads; ++h) {
            for (uint32_t segment = 0; segment <= position / 256; ++segment) {
              ASSERT_EQ(seen.count({s, h, i, segment}), 1u);
            }
          }
        }
      }
      for (const auto& [key, count] : seen) ASSERT_EQ(count, 1);
    }
  }
}

TEST(PlanStep, SplitsALoneLongContextOverThreadsWithDistinctPartialRows) {
  const Input decode(2000, 1);
  const std::vector<Slice> slices = {decode.slice()};
  const auto step = PlanStep(slices, Config(), kMaxTokens, 2);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->attention.size(), 2u * 8);  // KV heads x segments
  EXPECT_EQ(step->merges.size(), 2u);
  std::set<size_t> partial;
  for (const AttentionItem& item : step->attention) {
    for (uint32_t r = 0; r < item.rows; ++r) EXPECT_TRUE(partial.insert(item.partial + r).second);
  }
  EXPECT_EQ(partial.size(), step->partial_rows);
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
