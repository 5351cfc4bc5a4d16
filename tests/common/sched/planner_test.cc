// SPDX-License-Identifier: Apache-2.0
#include "common/sched/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace baton::sched {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kBlock = 32;
// The order in which they stand.
std::vector<Chunk> Plan(const std::vector<uint32_t>& remaining, uint32_t decode_rows,
                        const Limits& limits) {
  std::vector<uint32_t> order(remaining.size());
  std::iota(order.begin(), order.end(), 0);
  return PlanChunks(remaining, order, decode_rows, limits);
}

std::vector<uint32_t> Sizes(const std::vector<Chunk>& chunks) {
  std::vector<uint32_t> sizes;
  for (const Chunk& chunk : chunks) sizes.push_back(chunk.tokens);
  return sizes;
}

// Runs one prompt to its end by itself; the chunks it took.
std::vector<uint32_t> RunAlone(uint32_t tokens, const Limits& limits, uint32_t decode_rows = 0) {
  std::vector<uint32_t> sizes;
  while (tokens > 0) {
    const auto chunks = Plan({tokens}, decode_rows, limits);
    if (chunks.size() != 1 || chunks[0].tokens == 0 || chunks[0].tokens > tokens) break;
    sizes.push_back(chunks[0].tokens);
    tokens -= chunks[0].tokens;
  }
  EXPECT_EQ(tokens, 0u);
  return sizes;
}

TEST(PlanChunks, LongPromptIsCutEvenly) {
  const Limits limits{.chunk_tokens = 512, .max_step_tokens = 1024};
  EXPECT_THAT(RunAlone(512, limits), ElementsAre(512));
  EXPECT_THAT(RunAlone(513, limits), ElementsAre(288, 225));
  EXPECT_THAT(RunAlone(1024, limits), ElementsAre(512, 512));
  EXPECT_THAT(RunAlone(1025, limits), ElementsAre(352, 352, 321));
  EXPECT_THAT(RunAlone(1, limits), ElementsAre(1));
}

TEST(PlanChunks, DecodeRowsLeaveTheRestOfTheModelsStep) {
  const Limits limits{.chunk_tokens = 512, .max_step_tokens = 512};
  const std::vector<uint32_t> prompts = {480, 480};
  EXPECT_THAT(Sizes(Plan(prompts, 16, limits)), ElementsAre(480));
  EXPECT_THAT(Sizes(Plan(prompts, 100, limits)), ElementsAre(384));
  EXPECT_TRUE(Plan(prompts, 512, limits).empty());
}

TEST(PlanChunks, ShortPromptsShareAStep) {
  const Limits limits{.chunk_tokens = 128, .max_step_tokens = 256};
  const std::vector<uint32_t> prompts = {100, 20, 30, 7};
  const std::vector<uint32_t> order = {3, 1, 2, 0};
  const auto chunks = PlanChunks(prompts, order, 0, limits);
  EXPECT_THAT(Sizes(chunks), ElementsAre(7, 20, 30, 64));
  EXPECT_EQ(chunks[3].prompt, 0u);
}

TEST(ChunkWithin, IsWhatFitsIntoTheStallInWholeBlocks) {
  StepCosts costs;
  EXPECT_EQ(ChunkWithin(absl::Milliseconds(1), costs, 512), 512u) << "nothing is known yet";
  costs.prompt_step = 0.002;
  costs.prompt_token = 0.00025;
  EXPECT_EQ(ChunkWithin(absl::InfiniteDuration(), costs, 512), 512u);
  EXPECT_EQ(ChunkWithin(absl::Milliseconds(30), costs, 512), 96u);
  EXPECT_EQ(ChunkWithin(absl::Milliseconds(26), costs, 512), 96u);
  EXPECT_EQ(ChunkWithin(absl::Milliseconds(25), costs, 512), 64u);
  EXPECT_EQ(ChunkWithin(absl::Milliseconds(1), costs, 512), 32u) << "prompts always go on";
  EXPECT_EQ(ChunkWithin(absl::Milliseconds(200), costs, 64), 64u);
}

TEST(PlanChunks, RandomPlansKeepEveryRule) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    Limits limits;
    limits.chunk_tokens = kBlock * (1 + random() % 20);
    limits.max_step_tokens = kBlock * (2 + random() % 40);
    const auto rows = static_cast<uint32_t>(random() % (limits.max_step_tokens - kBlock));
    std::vector<uint32_t> prompts(1 + random() % 12);
    for (uint32_t& remaining : prompts) remaining = 1 + random() % 2000;
    std::map<uint32_t, int> seen;
    uint32_t total = 0;
    for (const Chunk& chunk : Plan(prompts, rows, limits)) {
      ASSERT_EQ(++seen[chunk.prompt], 1);
      const uint32_t remaining = prompts[chunk.prompt];
      ASSERT_TRUE(chunk.tokens == remaining || chunk.tokens % kBlock == 0);
      ASSERT_LE(chunk.tokens, remaining);
      ASSERT_GT(chunk.tokens, 0u);
      total += chunk.tokens;
    }
    ASSERT_LE(total, limits.chunk_tokens);
    ASSERT_LE(total + rows, limits.max_step_tokens);
    ASSERT_GT(total, 0u) << "a step without progress";
  }
}

TEST(PlanChunks, NoChunkOfALonePromptIsTiny) {
  const Limits limits{.chunk_tokens = 256, .max_step_tokens = 512};
  for (uint32_t tokens = 257; tokens < 3000; ++tokens) {
    const auto sizes = RunAlone(tokens, limits);
    const uint32_t fewest = (tokens + 255) / 256;
    ASSERT_EQ(sizes.size(), fewest) << tokens;
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    // Rounding up to blocks costs the last chunk at most a block per chunk.
    ASSERT_LE(*most - *least, kBlock * fewest) << tokens;
  }
}

}  // namespace
}  // namespace baton::sched
