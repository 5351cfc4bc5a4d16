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

using testing::ElementsAre;

constexpr uint32_t kBlock = 32;
const absl::Time kStart = absl::FromUnixSeconds(1000);

Prompt Waiting(uint32_t remaining, absl::Duration waited, uint64_t arrival) {
  return {remaining, kStart - waited, arrival};
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
    const std::vector<Prompt> prompts = {{tokens, kStart, 1}};
    const auto chunks = PlanChunks(prompts, decode_rows, limits, kStart);
    if (chunks.size() != 1 || chunks[0].tokens == 0 || chunks[0].tokens > tokens) break;
    sizes.push_back(chunks[0].tokens);
    tokens -= chunks[0].tokens;
  }
  EXPECT_EQ(tokens, 0u);
  return sizes;
}

TEST(ServiceOrder, ShortestFirstThenByArrival) {
  const std::vector<Prompt> prompts = {
      Waiting(500, absl::Seconds(1), 1), Waiting(10, absl::Seconds(1), 5),
      Waiting(10, absl::ZeroDuration(), 4), Waiting(100, absl::ZeroDuration(), 3)};
  EXPECT_THAT(ServiceOrder(prompts, absl::Seconds(2), kStart), ElementsAre(2, 1, 3, 0));
}

TEST(ServiceOrder, PromptThatWaitedLongGoesFirst) {
  const std::vector<Prompt> prompts = {
      Waiting(10, absl::Seconds(1), 3), Waiting(5000, absl::Seconds(2), 2),
      Waiting(9000, absl::Seconds(3), 1), Waiting(1, absl::ZeroDuration(), 4)};
  EXPECT_THAT(ServiceOrder(prompts, absl::Seconds(2), kStart), ElementsAre(2, 1, 3, 0));
}

TEST(ServiceOrder, EqualPromptsAreServedInOrderOfArrival) {
  std::vector<Prompt> prompts;
  for (uint64_t arrival : {5, 3, 9, 1}) {
    prompts.push_back(Waiting(64, absl::ZeroDuration(), arrival));
  }
  EXPECT_THAT(ServiceOrder(prompts, absl::Seconds(2), kStart), ElementsAre(3, 1, 0, 2));
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
  const std::vector<Prompt> prompts = {{480, kStart, 1}, {480, kStart, 2}};
  EXPECT_THAT(Sizes(PlanChunks(prompts, 16, limits, kStart)), ElementsAre(480));
  EXPECT_THAT(Sizes(PlanChunks(prompts, 100, limits, kStart)), ElementsAre(256, 128));
  EXPECT_TRUE(PlanChunks(prompts, 512, limits, kStart).empty());
}

TEST(PlanChunks, ShortPromptsShareAStep) {
  const Limits limits{.chunk_tokens = 128, .max_step_tokens = 256};
  const std::vector<Prompt> prompts = {
      {100, kStart, 1}, {20, kStart, 2}, {30, kStart, 3}, {7, kStart, 4}};
  const auto chunks = PlanChunks(prompts, 0, limits, kStart);
  EXPECT_THAT(Sizes(chunks), ElementsAre(7, 20, 30, 64));
  EXPECT_EQ(chunks[3].prompt, 0u);
}

TEST(PlanChunks, RandomPlansKeepEveryRule) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    Limits limits;
    limits.chunk_tokens = kBlock * (1 + random() % 20);
    limits.max_step_tokens = kBlock * (2 + random() % 40);
    const auto rows = static_cast<uint32_t>(random() % (limits.max_step_tokens - kBlock));
    std::vector<Prompt> prompts(1 + random() % 12);
    for (size_t i = 0; i < prompts.size(); ++i) {
      prompts[i] = Waiting(1 + random() % 2000, absl::Milliseconds(random() % 4000), i);
    }
    std::map<uint32_t, int> seen;
    uint32_t total = 0;
    for (const Chunk& chunk : PlanChunks(prompts, rows, limits, kStart)) {
      ASSERT_EQ(++seen[chunk.prompt], 1);
      const uint32_t remaining = prompts[chunk.prompt].remaining;
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

// Short prompts at twice the capacity for a minute, and one long one among
// them: it starts when it has aged, and ends soon after.
TEST(PlanChunks, LongPromptIsNotStarvedByAStreamOfShortOnes) {
  const Limits limits{.chunk_tokens = 64, .max_step_tokens = 128, .aging = absl::Seconds(2)};
  std::vector<Prompt> prompts;
  uint64_t arrival = 0;
  absl::Time now = kStart;
  const absl::Duration step = absl::Milliseconds(10);
  absl::Time long_start = absl::InfiniteFuture(), long_end = absl::InfiniteFuture();
  constexpr uint64_t kLong = 1000;
  for (int i = 0; i < 6000; ++i, now += step) {
    for (int n = 0; n < 13; ++n) {
      prompts.push_back({arrival == kLong ? 1500u : 10u, now, arrival});
      ++arrival;
    }
    for (const Chunk& chunk : PlanChunks(prompts, 4, limits, now)) {
      Prompt& prompt = prompts[chunk.prompt];
      prompt.remaining -= chunk.tokens;
      if (prompt.arrival != kLong) continue;
      long_start = std::min(long_start, now);
      if (prompt.remaining == 0) long_end = now;
    }
    std::erase_if(prompts, [](const Prompt& prompt) { return prompt.remaining == 0; });
    if (long_end != absl::InfiniteFuture()) break;
  }
  const absl::Time submitted = kStart + step * (kLong / 13);
  // Before it come those that aged before: at twice the capacity, as long again.
  EXPECT_LE(long_start, submitted + absl::Seconds(5));
  EXPECT_LE(long_end, long_start + absl::Seconds(1));
}

}  // namespace
}  // namespace baton::sched
