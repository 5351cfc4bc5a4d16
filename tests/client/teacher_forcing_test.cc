// SPDX-License-Identifier: Apache-2.0
#include "client/cli/teacher_forcing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "client/cli/sequence_runner.h"
#include "common/model/fake/fake_model.h"

namespace baton::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<model::Model> Fake(uint64_t seed, uint32_t vocabulary = 1000) {
  model::FakeOptions options;
  options.seed = seed;
  options.vocabulary_size = vocabulary;
  options.max_step_tokens = 24;
  return *model::MakeFakeModel(options);
}

TEST(ScoreTokens, ScoresEachTokenByWhatStandsBeforeIt) {
  const auto model = Fake(1);
  const std::vector<TokenId> tokens = {7, 8, 9};
  std::vector<std::vector<float>> rows;
  const auto score = ScoreTokens(model.get(), tokens, [&](std::span<const float> row) {
    rows.emplace_back(row.begin(), row.end());
  });
  ASSERT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(rows.size(), 3u);
  ASSERT_EQ(score->logprobs.size(), 2u);
  // Logits after token i predict token i + 1; the softmax by hand.
  for (size_t i = 0; i < 2; ++i) {
    double sum = 0;
    for (float logit : rows[i]) sum += std::exp(double{logit});
    EXPECT_NEAR(score->logprobs[i], rows[i][tokens[i + 1]] - std::log(sum), 1e-9);
  }
  EXPECT_NEAR(score->total, score->logprobs[0] + score->logprobs[1], 1e-12);
  EXPECT_NEAR(score->perplexity, std::exp(-score->total / 2), 1e-9);
}

TEST(ScoreTokens, OneTokenHasNothingToScoreAndNoneIsRefused) {
  const auto model = Fake(1);
  const auto score = ScoreTokens(model.get(), std::vector<TokenId>{7}, {});
  ASSERT_TRUE(score.ok());
  EXPECT_TRUE(score->logprobs.empty());
  EXPECT_EQ(score->perplexity, 0);
  EXPECT_EQ(ScoreTokens(model.get(), {}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScoreTokens(model.get(), std::vector<TokenId>(9000, 7), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ScoreTokens, PaddingIdsCountForNothing) {
  model::FakeOptions options;
  options.vocabulary_size = 100;
  options.usable_vocabulary = 90;
  const auto model = *model::MakeFakeModel(options);
  std::vector<float> row;
  const auto score = ScoreTokens(model.get(), std::vector<TokenId>{1, 2}, [&](auto logits) {
    if (row.empty()) row.assign(logits.begin(), logits.end());
  });
  ASSERT_TRUE(score.ok());
  double sum = 0;
  for (size_t i = 0; i < 90; ++i) sum += std::exp(double{row[i]});
  EXPECT_NEAR(score->logprobs[0], row[2] - std::log(sum), 1e-9);
  EXPECT_EQ(ScoreTokens(model.get(), std::vector<TokenId>{1, 95}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ParseGolden, JoinsPromptAndAnswerAndLeavesLongCasesOut) {
  const auto cases = ParseGolden(R"([
      {"name": "a", "prompt_ids": [1, 2], "greedy_ids": [3], "text": "x"},
      {"name": "b", "prompt_ids": [1, 2], "greedy_ids": [3, 4]}])",
                                 3);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 1u);
  EXPECT_EQ((*cases)[0].name, "a");
  EXPECT_THAT((*cases)[0].ids, ElementsAre(1, 2, 3));
}

TEST(ParseGolden, MalformedCasesAreNamed) {
  EXPECT_FALSE(ParseGolden("{", 9).ok());
  EXPECT_FALSE(ParseGolden("{}", 9).ok());
  for (const char* text : {R"([{"prompt_ids": [1], "greedy_ids": []}, {"prompt_ids": [1]}])",
                           R"([{"prompt_ids": [1], "greedy_ids": []}, 5])",
                           R"([{"prompt_ids": [1], "greedy_ids": []},
                               {"prompt_ids": [-1], "greedy_ids": []}])"}) {
    const auto cases = ParseGolden(text, 9);
    EXPECT_THAT(std::string(cases.status().message()), HasSubstr("case 1: "));
  }
}

TEST(CompareModels, SameModelIsAtDistanceZeroAtEveryLaterPosition) {
  const auto a = Fake(1), b = Fake(1);
  const auto report = CompareModels(a.get(), b.get(), {{"x", {1, 2, 3}}, {"y", {4, 5}}});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->later.positions, 3u);  // 2 + 1: position 0 of each stands apart
  EXPECT_EQ(report->first.positions, 2u);
  EXPECT_EQ(report->later.mean_kl, 0);
  EXPECT_EQ(report->later.same_top, 1);
}

TEST(CompareModels, MeasuresAgainstTheReference) {
  const auto against = Fake(1), tested = Fake(2);
  const std::vector<TokenId> ids = {1, 2};
  const auto report = CompareModels(against.get(), tested.get(), {{"x", ids}});
  ASSERT_TRUE(report.ok());
  std::vector<double> p, q;
  ASSERT_TRUE(ScoreTokens(against.get(), ids, [&](std::span<const float> row) {
                p = LogSoftmax(row);
              }).ok());
  ASSERT_TRUE(ScoreTokens(tested.get(), ids, [&](std::span<const float> row) {
                q = LogSoftmax(row);
              }).ok());
  EXPECT_GT(report->later.mean_kl, 0.1);
  EXPECT_NEAR(report->later.mean_kl, KlDivergence(p, q), 1e-12);
}

TEST(CompareModels, DifferentVocabulariesAreRefused) {
  const auto a = Fake(1), b = Fake(1, 500);
  EXPECT_EQ(CompareModels(a.get(), b.get(), {{"x", {1}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::cli
