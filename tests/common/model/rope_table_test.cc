// SPDX-License-Identifier: Apache-2.0
#include "common/model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace baton::model {
namespace {

TEST(RopeTable, PositionZeroDoesNotRotate) {
  const RopeTable table(4, 8, 10000);
  for (float cos : table.cos(0)) EXPECT_EQ(cos, 1.0f);
  for (float sin : table.sin(0)) EXPECT_EQ(sin, 0.0f);
  EXPECT_EQ(table.cos(3).size(), 4u);
}

// A 32k model with a rope ratio of 50: float32 angles would be off by 1e-3 out
// there, and a table cut at 8192 would be read beyond its end.
TEST(RopeTable, IsExactAtFarPositions) {
  constexpr uint32_t kTableContext = 32768, kRotary = 64;
  constexpr double kBase = 10000.0 * 50;
  const RopeTable table(kTableContext, kRotary, kBase);
  for (uint32_t position : {1u, 2049u, 8191u, 8192u, 8193u, 32767u}) {
    for (uint32_t i = 0; i < kRotary / 2; ++i) {
      const long double angle =
          position * std::pow(static_cast<long double>(kBase), -2.0L * i / kRotary);
      ASSERT_NEAR(table.cos(position)[i], static_cast<double>(std::cos(angle)), 1e-7);
      ASSERT_NEAR(table.sin(position)[i], static_cast<double>(std::sin(angle)), 1e-7);
    }
  }
}

}  // namespace
}  // namespace baton::model
