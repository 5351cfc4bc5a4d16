// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "common/sampling/sampler.h"

namespace baton::sampling {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with the algorithm (Random123, kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterUniform, EveryArgumentMatters) {
  std::set<double> values;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (uint32_t choice : {0u, 1u, 9u}) {
      for (uint32_t index = 0; index < 100; ++index) {
        values.insert(CounterUniform(seed, choice, index));
      }
    }
  }
  EXPECT_EQ(values.size(), 4u * 3 * 100);
}

// Kolmogorov-Smirnov distance over the positions of one sequence; 1.95/sqrt(n)
// is exceeded once in a thousand truly uniform samples, and these are fixed.
TEST(CounterUniform, IsUniformOverPositionsAndOverSeeds) {
  constexpr int kCount = 20000;
  for (bool over_seeds : {false, true}) {
    std::vector<double> values;
    for (uint32_t i = 0; i < kCount; ++i) {
      values.push_back(over_seeds ? CounterUniform(i, 0, 5) : CounterUniform(42, 0, i));
    }
    std::sort(values.begin(), values.end());
    EXPECT_GE(values.front(), 0);
    EXPECT_LT(values.back(), 1);
    double distance = 0;
    for (int i = 0; i < kCount; ++i) {
      distance = std::max(distance, std::abs(values[static_cast<size_t>(i)] - (i + 0.5) / kCount));
    }
    EXPECT_LT(distance, 1.95 / std::sqrt(kCount));
  }
}

}  // namespace
}  // namespace baton::sampling
