// SPDX-License-Identifier: Apache-2.0
#include "client/cli/divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace baton::cli {
namespace {

TEST(Divergence, LogSoftmaxByHand) {
  // exp: 1, 2, 5 of 8.
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  const std::vector<double> result = LogSoftmax(logits);
  EXPECT_NEAR(result[0], std::log(1.0 / 8), 1e-6);
  EXPECT_NEAR(result[1], std::log(2.0 / 8), 1e-6);
  EXPECT_NEAR(result[2], std::log(5.0 / 8), 1e-6);
}

TEST(Divergence, LogSoftmaxOfLargeLogitsDoesNotOverflow) {
  const std::vector<double> result = LogSoftmax(std::vector<float>{1e4f, 1e4f});
  EXPECT_NEAR(result[0], std::log(0.5), 1e-6);
}

TEST(Divergence, KlByHand) {
  // KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 ln 2 + 1/2 ln 2/3
  const std::vector<double> p = {std::log(0.5), std::log(0.5)};
  const std::vector<double> q = {std::log(0.25), std::log(0.75)};
  EXPECT_NEAR(KlDivergence(p, q), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-12);
  // The other way round it is another number: 1/4 ln 1/2 + 3/4 ln 3/2.
  EXPECT_NEAR(KlDivergence(q, p), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-12);
  EXPECT_EQ(KlDivergence(p, p), 0);
}

TEST(Divergence, ImpossibleTokensOfTheReferenceCountNothing) {
  const double none = -INFINITY;
  EXPECT_EQ(KlDivergence(std::vector<double>{0, none}, std::vector<double>{0, none}), 0);
}

TEST(Divergence, SummarizesPositions) {
  Divergence divergence;
  const std::vector<float> even = {0, 0};
  const std::vector<float> tilted = {0, std::log(3.0f)};  // 1/4, 3/4
  divergence.Add(tilted, tilted);
  divergence.Add(even, tilted);  // the most probable: 0 (first of equals) and 1
  const Divergence::Summary summary = divergence.Summarize();
  const double kl = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3);
  EXPECT_EQ(summary.positions, 2u);
  EXPECT_NEAR(summary.mean_kl, kl / 2, 1e-6);
  EXPECT_NEAR(summary.p99_kl, 0.99 * kl, 1e-6);
  EXPECT_EQ(summary.same_top, 0.5);
}

}  // namespace
}  // namespace baton::cli
