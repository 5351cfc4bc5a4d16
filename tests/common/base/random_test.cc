// SPDX-License-Identifier: Apache-2.0
#include "common/base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

TEST(Random, NumbersDoNotRepeatAndUseEveryBit) {
  std::set<uint64_t> seen;
  uint64_t ones = 0, zeros = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = RandomU64();
    EXPECT_TRUE(seen.insert(value).second);
    ones |= value;
    zeros |= ~value;
  }
  EXPECT_EQ(ones, ~uint64_t{0});
  EXPECT_EQ(zeros, ~uint64_t{0});
}

TEST(Random, BytesAreAsManyAsAsked) {
  for (const size_t count : {0u, 1u, 16u, 300u}) EXPECT_EQ(RandomBytes(count).size(), count);
  EXPECT_NE(RandomBytes(16), RandomBytes(16));
}

}  // namespace
}  // namespace baton
