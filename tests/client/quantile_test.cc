// SPDX-License-Identifier: Apache-2.0
#include "client/cli/quantile.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

TEST(Quantile, InterpolatesBetweenNeighbours) {
  // numpy.quantile([4, 1, 3, 2], [0, .5, .99, 1])
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.99), 3.97);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 4);
}

TEST(Quantile, OfOneOrNoValue) {
  EXPECT_DOUBLE_EQ(Quantile({7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(Quantile({}, 0.5), 0);
}

}  // namespace
}  // namespace baton::cli
