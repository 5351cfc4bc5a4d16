// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace baton::sampling {
namespace {

TEST(Weights, AreExponentialsWithinTheStatedError) {
  for (float x = 0; x > -100; x -= 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(Weight(x, 0, 1), exact, 2e-7 * exact + 0x1p-36) << x;
  }
  EXPECT_EQ(Weight(3, 3, 1), 1);
}

TEST(Weights, ExtremeScalesDoNotOverflow) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(Weight(5, 5, kMax), 1);
  EXPECT_EQ(Weight(4.999f, 5, kMax), 0);
  EXPECT_EQ(Weight(-kMax, kMax, 1), 0);
  EXPECT_EQ(Weight(-1, 1, 1e-30f), 1);
}

// The property that selection relies on: sums do not depend on the order.
TEST(Weights, SumsAreExactInAnyOrder) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  for (size_t size : {1u, 7u, 64u, 65u, 1000u, 49152u}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = normal(random);
    const float max = *std::max_element(logits.begin(), logits.end());
    std::vector<double> groups;
    const double total = SumWeights(logits, max, 1.25f, groups);
    EXPECT_EQ(std::accumulate(groups.begin(), groups.end(), 0.0), total);
    std::shuffle(logits.begin(), logits.end(), random);
    double sum = 0;
    for (float logit : logits) sum += Weight(logit, max, 1.25f);
    EXPECT_EQ(sum, total) << size;
  }
}

}  // namespace
}  // namespace baton::sampling
