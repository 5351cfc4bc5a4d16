// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/logit_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

std::vector<float> Edit(std::vector<float> logits, const Params& params, const Position& position) {
  EXPECT_TRUE(EditLogits(params, position, logits));
  return logits;
}

TEST(LogitEdits, PresenceAndFrequencyCountTheOutputAlone) {
  const std::vector<TokenId> tokens = {0, 1, 1, 2, 3, 3, 3};  // the last four are output
  const Position position{.tokens = tokens, .output_index = 4};
  EXPECT_THAT(Edit({5, 5, 5, 5, 5}, {.presence_penalty = 1.5f}, position),
              ElementsAre(5, 5, 3.5f, 3.5f, 5));
  EXPECT_THAT(Edit({5, 5, 5, 5, 5}, {.frequency_penalty = 0.5f}, position),
              ElementsAre(5, 5, 4.5f, 3.5f, 5));
  EXPECT_THAT(Edit({5, 5, 5, 5, 5}, {.frequency_penalty = -1}, position),
              ElementsAre(5, 5, 6, 8, 5));
}

TEST(LogitEdits, RepetitionPenaltyCountsPromptAndOutputOnce) {
  const std::vector<TokenId> tokens = {0, 1, 1, 2};
  EXPECT_THAT(Edit({4, -4, 4, 4}, {.repetition_penalty = 2}, {.tokens = tokens, .output_index = 1}),
              ElementsAre(2, -8, 2, 4));
}

TEST(LogitEdits, PenaltiesComeBeforeBiasAndInTheirOrder) {
  const std::vector<TokenId> tokens = {0, 0};
  // 8 / 2 = 4, - 1 = 3, - 2 x 0.25 = 2.5, + 10 = 12.5.
  const Params params{.repetition_penalty = 2,
                      .presence_penalty = 1,
                      .frequency_penalty = 0.25f,
                      .logit_bias = {{0, 10.0f}, {1, -1.0f}}};
  EXPECT_THAT(Edit({8, 0}, params, {.tokens = tokens, .output_index = 2}),
              ElementsAre(FloatEq(12.5f), FloatEq(-1)));
}

TEST(LogitEdits, ABadSequenceBansItsLastTokenBehindTheOthers) {
  const Params params{.bad_sequences = {{3}, {1, 2}, {9, 9, 9, 0}}};
  const std::vector<TokenId> tokens = {7, 1};
  EXPECT_THAT(Edit({1, 1, 1, 1}, params, {.tokens = tokens, .output_index = 1}),
              ElementsAre(1, 1, kBanned, kBanned));
  const std::vector<TokenId> other = {1, 7};
  EXPECT_THAT(Edit({1, 1, 1, 1}, params, {.tokens = other, .output_index = 1}),
              ElementsAre(1, 1, 1, kBanned));
  EXPECT_THAT(Edit({1, 1, 1, 1}, params, {}), ElementsAre(1, 1, 1, kBanned));
}

TEST(LogitEdits, EndTokensAreBannedUntilMinTokens) {
  const std::vector<TokenId> ends = {1, 3, 77};
  const Params params{.logit_bias = {{1, 100.0f}}, .min_tokens = 2};
  EXPECT_THAT(Edit({1, 1, 1, 1}, params, {.output_index = 1, .end_tokens = ends}),
              ElementsAre(1, kBanned, 1, kBanned));
  EXPECT_THAT(Edit({1, 1, 1, 1}, params, {.output_index = 2, .end_tokens = ends}),
              ElementsAre(1, 101, 1, 1));
}

TEST(LogitEdits, AConstraintBansWhatItDoesNotAllow) {
  const std::vector<uint64_t> allowed = {~uint64_t{0}, 0, uint64_t{1} << 2};
  std::vector<float> logits(200, 1.0f);
  ASSERT_TRUE(EditLogits({}, {.allowed = allowed}, logits));
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(logits[i], i < 64 || i == 130 ? 1.0f : kBanned) << i;
  }
}

TEST(LogitEdits, AConstraintComesAfterBiasAndLeavesNoBannedToken) {
  const std::vector<uint64_t> allowed = {0b0110};
  const Params params{.logit_bias = {{0, 100.0f}, {1, 2.0f}}, .bad_sequences = {{2}}};
  EXPECT_THAT(Edit({1, 1, 1, 1}, params, {.allowed = allowed}),
              ElementsAre(kBanned, 3, kBanned, kBanned));
}

TEST(LogitEdits, ResultsStayFiniteAndBadInputIsFound) {
  const std::vector<TokenId> tokens = {0, 1};
  const Position position{.tokens = tokens, .output_index = 2};
  EXPECT_THAT(Edit({kFloatMax, -kFloatMax}, {.repetition_penalty = 1e-9f}, position),
              ElementsAre(kFloatMax, ::testing::Ge(-kFloatMax)));
  EXPECT_THAT(
      Edit({kFloatMax, -kFloatMax}, {.repetition_penalty = 10, .presence_penalty = 2}, position),
      ElementsAre(::testing::Lt(kFloatMax), -kFloatMax));
  std::vector<float> logits = {std::numeric_limits<float>::infinity(), 1};
  EXPECT_FALSE(EditLogits({.presence_penalty = 1}, position, logits));
}

TEST(TokenHistory, GrowsWithItsSequence) {
  std::vector<TokenId> tokens = {5, 6, 5};
  TokenHistory history;
  history.Update(tokens, 3);
  ASSERT_EQ(history.entries().size(), 2u);
  EXPECT_EQ(history.entries()[0].outputs, 0u);
  tokens.insert(tokens.end(), {5, 7, 7});
  history.Update(tokens, 3);
  ASSERT_EQ(history.entries().size(), 3u);
  EXPECT_EQ(history.entries()[0].token, 5u);
  EXPECT_EQ(history.entries()[0].outputs, 1u);
  EXPECT_EQ(history.entries()[2].outputs, 2u);
}

}  // namespace
}  // namespace baton::sampling
