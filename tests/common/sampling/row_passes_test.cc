// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "common/sampling/exact_math.h"

namespace baton::sampling {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();

std::vector<float> RandomRow(std::mt19937& random, size_t size, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(size);
  for (float& value : row) value = std::round(normal(random) * 64) / 64;  // some are equal
  return row;
}

// Everything that the passes say about a row.
struct Said {
  bool finite = false;
  double total = 0, surprise = 0, above = 0, count = 0, cut_total = 0;
  std::vector<float> group_max, weights, keys, key_max, cut_weights;
  std::vector<double> sums, cut_sums;
  std::vector<uint64_t> bits, count_bits;

  friend bool operator==(const Said&, const Said&) = default;
};

Said Ask(const RowPasses& passes, const std::vector<float>& row, float scale) {
  const size_t size = row.size(), groups = GroupsOf(size);
  Said said;
  said.group_max.resize(groups);
  said.finite = passes.scan(row.data(), size, said.group_max.data());
  const Distribution distribution{*std::max_element(said.group_max.begin(), said.group_max.end()),
                                  scale};
  said.weights.resize(size);
  said.sums.resize(groups);
  said.total = passes.weigh(row.data(), size, distribution, said.weights.data(), said.sums.data());
  said.surprise = passes.surprise(row.data(), said.weights.data(), size, distribution);
  said.keys.resize(size);
  said.key_max.resize(groups);
  passes.typicality(row.data(), size, distribution, 1.5f, said.keys.data(), said.key_max.data());
  said.bits.resize(groups);
  said.count_bits.resize(groups);
  const float high = row[size / 2], low = high - 0.5f;
  said.above = passes.split(row.data(), said.weights.data(), size, low, high, said.bits.data());
  said.count = passes.split(row.data(), nullptr, size, low, high, said.count_bits.data());
  said.cut_weights = said.weights;
  said.cut_sums.resize(groups);
  said.cut_total =
      passes.cut(row.data(), size, high, size / 2, said.cut_weights.data(), said.cut_sums.data());
  return said;
}

TEST(RowPasses, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 random(1);
  for (size_t size : {1u, 5u, 63u, 64u, 65u, 200u, 1000u, 65024u}) {
    for (float scale : {1e-30f, 0.7f, 1.0f, 30.0f, kMax}) {
      const std::vector<float> row = RandomRow(random, size, 3);
      const Said baseline = Ask(*AllRowPasses().back(), row, scale);
      for (const RowPasses* passes : AllRowPasses()) {
        EXPECT_TRUE(Ask(*passes, row, scale) == baseline) << passes->isa << " " << size;
      }
    }
  }
}

// Against a plain loop, one element at a time.
TEST(RowPasses, EqualAPlainLoop) {
  std::mt19937 random(2);
  for (size_t size : {1u, 63u, 64u, 130u, 1000u}) {
    const std::vector<float> row = RandomRow(random, size, 2);
    const Said said = Ask(BestRowPasses(), row, 1.25f);
    const float max = *std::max_element(row.begin(), row.end());
    const float high = row[size / 2], low = high - 0.5f;
    double total = 0, surprise = 0, above = 0, count = 0, cut_total = 0;
    for (size_t i = 0; i < size; ++i) {
      const float weight = ExactWeight(row[i], max, 1.25f);
      ASSERT_EQ(said.weights[i], weight);
      const float x = (max - row[i]) * 1.25f;
      total += weight;
      surprise += static_cast<double>(weight) * x;
      above += row[i] > high ? weight : 0;
      count += row[i] > high ? 1 : 0;
      const bool kept = row[i] > high || (row[i] == high && i <= size / 2);
      ASSERT_EQ(said.cut_weights[i], kept ? weight : 0);
      cut_total += kept ? weight : 0;
      ASSERT_EQ(said.bits[i / kGroup] >> (i % kGroup) & 1, row[i] >= low && row[i] <= high);
      ASSERT_EQ(said.keys[i], -std::abs(x - 1.5f));
    }
    EXPECT_EQ(said.bits, said.count_bits);
    EXPECT_EQ(said.total, total);
    EXPECT_NEAR(said.surprise, surprise, 1e-6 * total);
    EXPECT_EQ(said.above, above);
    EXPECT_EQ(said.count, count);
    EXPECT_EQ(said.cut_total, cut_total);
  }
}

TEST(RowPasses, ScanFindsNanAndInfinityAnywhere) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    for (size_t at = 0; at < 150; ++at) {
      std::vector<float> row(150, 1), best(3);
      for (const RowPasses* passes : AllRowPasses()) {
        ASSERT_TRUE(passes->scan(row.data(), row.size(), best.data()));
      }
      row[at] = bad;
      for (const RowPasses* passes : AllRowPasses()) {
        ASSERT_FALSE(passes->scan(row.data(), row.size(), best.data())) << passes->isa << at;
      }
    }
  }
}

TEST(ExactWeight, IsTheExponentialWithinTheStatedError) {
  for (float x = 0; x > -100; x -= 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(ExactWeight(x, 0, 1), exact, 2e-7 * exact * (1 - x) + 0x1p-36) << x;
  }
  EXPECT_EQ(ExactWeight(3, 3, 1), 1);
}

TEST(ExactWeight, ExtremeScalesDoNotOverflow) {
  EXPECT_EQ(ExactWeight(5, 5, kMax), 1);
  EXPECT_EQ(ExactWeight(4.999f, 5, kMax), 0);
  EXPECT_EQ(ExactWeight(-kMax, kMax, 1), 0);
  EXPECT_EQ(ExactWeight(-1, 1, 1e-30f), 1);
}

// The property that selection relies on: sums do not depend on the order.
TEST(ExactWeight, SumsAreExactInAnyOrder) {
  std::mt19937 random(3);
  for (size_t size : {1u, 7u, 64u, 65u, 1000u, 49152u}) {
    std::vector<float> row = RandomRow(random, size, 4);
    const double total = Ask(BestRowPasses(), row, 1.25f).total;
    std::shuffle(row.begin(), row.end(), random);
    EXPECT_EQ(Ask(BestRowPasses(), row, 1.25f).total, total) << size;
  }
}

TEST(ExactLog, EqualsTheLogarithm) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> exponent(-300, 300);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::pow(10, i % 2 == 0 ? exponent(random) : exponent(random) / 300);
    ASSERT_NEAR(ExactLog(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  EXPECT_EQ(ExactLog(1), 0);
}

}  // namespace
}  // namespace baton::sampling
