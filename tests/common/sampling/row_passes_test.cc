// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "common/sampling/exact_math.h"
#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

std::vector<float> RandomRow(std::mt19937& random, size_t size, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(size);
  for (float& value : row) value = std::round(normal(random) * 64) / 64;  // some are equal
  return row;
}

std::vector<float> Room(size_t size) { return std::vector<float>(GroupsOf(size) * kGroup); }

// What a pass finds in a range.
struct FoundThere {
  Masses masses;
  std::vector<float> logits, weights;
  std::vector<double> above;
  std::vector<uint32_t> until;

  explicit FoundThere(size_t size)
      : logits(Room(size)), weights(Room(size)), above(BlocksOf(size)), until(BlocksOf(size)) {}
  Found room() { return {logits.data(), weights.data(), above.data(), until.data()}; }
  void Set(const Masses& result) {
    masses = result;
    logits.resize(result.found);
    weights.resize(result.found);
  }
  friend bool operator==(const FoundThere&, const FoundThere&) = default;
};

// Everything that the passes say about a row.
struct Said {
  explicit Said(size_t size) : weighed(size), split(size), counted(size), typical(size) {}

  bool finite = false;
  std::vector<float> group_max, weights, keys;
  FoundThere weighed, split, counted, typical;
  std::vector<uint64_t> kept, kept_typical;
  std::vector<double> sums;
  double mass = 0, sum = 0, surprise = 0;
  float least = 0, greatest = 0;

  friend bool operator==(const Said&, const Said&) = default;
};

// Of the middle element's surroundings.
struct Question {
  Distribution distribution;
  Prefix prefix;  // leaves out some
  Range range;
  Typicality typicality;
  Range typical_range;
  Prefix typical;
};

Question AskAbout(const std::vector<float>& row, float scale) {
  Question question;
  question.distribution = {*std::max_element(row.begin(), row.end()), scale};
  const float middle = row[row.size() / 2];
  question.prefix = {middle - 2, row.size() / 3};
  question.range = {middle - 0.5f, middle + 0.25f};
  question.typicality = {question.distribution, 1.5f};
  question.typical_range = {-0.75f, -0.25f};
  question.typical = {-0.5f, row.size() / 2};
  return question;
}

Said Ask(const RowPasses& passes, const std::vector<float>& row, const Question& question) {
  const size_t size = row.size(), groups = GroupsOf(size);
  Said said(size);
  said.group_max.resize(groups);
  said.finite = passes.scan(row.data(), size, said.group_max.data());
  const Row all = {row.data(), size, said.group_max.data()};
  said.weights = Room(size);
  said.mass = passes.mass(all, question.distribution);
  passes.weigh(all, {}, question.distribution, {}, false, said.weights.data(), {});
  std::vector<float> again = Room(size);
  said.weighed.Set(passes.weigh(all, question.prefix, question.distribution, question.range, true,
                                again.data(), said.weighed.room()));
  said.split.Set(passes.split(all, question.prefix, nullptr, said.weights.data(), question.range,
                              said.split.room()));
  said.counted.Set(passes.split(all, {}, nullptr, nullptr, question.range, said.counted.room()));
  said.typical.Set(passes.split(all, question.prefix, &question.typicality, said.weights.data(),
                                question.typical_range, said.typical.room()));
  said.kept.resize(groups);
  said.kept_typical.resize(groups);
  passes.mark(all, question.prefix, nullptr, {}, said.kept.data());
  passes.mark(all, question.prefix, &question.typicality, question.typical,
              said.kept_typical.data());
  said.sums.resize(groups);
  said.sum = passes.sum(said.weights.data(), size, said.kept.data(), said.sums.data());
  said.keys = Room(size);
  passes.typical_keys(row.data(), size, question.typicality, said.keys.data());
  said.surprise = passes.surprise(all, question.prefix, said.weights.data(), question.distribution);
  const Range extent = passes.extent(row.data(), size);
  said.least = extent.low;
  said.greatest = extent.high;
  said.weights.resize(size);
  said.keys.resize(size);
  return said;
}

TEST(RowPasses, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 random(1);
  for (size_t size : {1u, 5u, 63u, 64u, 65u, 200u, 1000u, 4096u, 4097u, 65024u}) {
    for (float scale : {1e-30f, 0.7f, 1.0f, 30.0f, kFloatMax}) {
      const std::vector<float> row = RandomRow(random, size, 3);
      const Question question = AskAbout(row, scale);
      const Said baseline = Ask(*AllRowPasses().back(), row, question);
      for (const RowPasses* passes : AllRowPasses()) {
        EXPECT_TRUE(Ask(*passes, row, question) == baseline) << passes->isa << " " << size;
      }
    }
  }
}

// Extreme logits, where something could overflow or lose its sign.
TEST(RowPasses, EveryInstructionSetGivesTheSameBitsOfExtremes) {
  std::mt19937 random(2);
  const float values[] = {0.0f,  -0.0f,  kFloatMax, -kFloatMax, 1e-38f, -1e-38f, 88.0f,
                          87.3f, -87.3f, 1e-45f,    3e38f,      -3e38f, 1.0f,    -1.0f};
  for (int round = 0; round < 200; ++round) {
    std::vector<float> row(1 + random() % 300);
    for (float& value : row) value = values[random() % std::size(values)];
    for (float scale : {1e-30f, 1.0f, kFloatMax}) {
      const Question question = AskAbout(row, scale);
      const Said baseline = Ask(*AllRowPasses().back(), row, question);
      for (const RowPasses* passes : AllRowPasses()) {
        ASSERT_TRUE(Ask(*passes, row, question) == baseline) << passes->isa << " " << round;
      }
    }
  }
}

void ExpectFound(const FoundThere& found, const std::vector<float>& row,
                 const std::vector<float>& weights, const std::vector<float>& keys,
                 const Prefix& prefix, const Range& range) {
  double above = 0;
  size_t count = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const bool held = prefix.Holds(row[i], i);
    above += held && keys[i] > range.high ? weights[i] : 0;
    if (held && keys[i] >= range.low && keys[i] <= range.high) {
      ASSERT_LT(count, found.masses.found);
      ASSERT_EQ(found.logits[count], row[i]);
      ASSERT_EQ(found.weights[count++], weights[i]);
    }
    if ((i + 1) % kBlock == 0 || i + 1 == row.size()) {
      ASSERT_EQ(found.until[i / kBlock], count);
    }
  }
  EXPECT_EQ(found.masses.found, count);
  EXPECT_EQ(found.masses.above, above);
  EXPECT_EQ(std::accumulate(found.above.begin(), found.above.end(), 0.0), above);
}

// Against a plain loop, one element at a time.
TEST(RowPasses, EqualAPlainLoop) {
  std::mt19937 random(2);
  for (size_t size : {1u, 63u, 64u, 130u, 1000u, 9000u}) {
    const std::vector<float> row = RandomRow(random, size, 2);
    const Question question = AskAbout(row, 1.25f);
    const float max = question.distribution.max;
    const Said said = Ask(BestRowPasses(), row, question);
    double total = 0, held_total = 0, surprise = 0, held_surprise = 0, sum = 0;
    for (size_t i = 0; i < size; ++i) {
      const float weight = ExactWeight(row[i], max, 1.25f), x = (max - row[i]) * 1.25f;
      const bool held = question.prefix.Holds(row[i], i);
      ASSERT_EQ(said.weights[i], weight);
      ASSERT_EQ(said.keys[i], -std::abs(x - 1.5f));
      total += weight;
      held_total += held ? weight : 0;
      const double product = static_cast<double>(weight) * x;
      surprise += held && row[i] > question.range.high ? product : 0;
      held_surprise += held ? product : 0;
      sum += held ? weight : 0;
      ASSERT_EQ(said.kept[i / kGroup] >> (i % kGroup) & 1, held);
      ASSERT_EQ(said.kept_typical[i / kGroup] >> (i % kGroup) & 1,
                held && question.typical.Holds(said.keys[i], i));
    }
    EXPECT_EQ(said.mass, total);
    EXPECT_EQ(said.weighed.masses.total, held_total);
    EXPECT_NEAR(said.weighed.masses.surprise, surprise, 1e-6 * total);
    EXPECT_NEAR(said.surprise, held_surprise, 1e-6 * total);
    EXPECT_EQ(said.sum, sum);
    EXPECT_EQ(said.least, *std::min_element(row.begin(), row.end()));
    EXPECT_EQ(said.greatest, max);
    const std::vector<float> ones(size, 1);
    ExpectFound(said.weighed, row, said.weights, row, question.prefix, question.range);
    ExpectFound(said.split, row, said.weights, row, question.prefix, question.range);
    ExpectFound(said.counted, row, ones, row, {}, question.range);
    ExpectFound(said.typical, row, said.weights, said.keys, question.prefix,
                question.typical_range);
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
  EXPECT_EQ(ExactWeight(5, 5, kFloatMax), 1);
  EXPECT_EQ(ExactWeight(4.999f, 5, kFloatMax), 0);
  EXPECT_EQ(ExactWeight(-kFloatMax, kFloatMax, 1), 0);
  EXPECT_EQ(ExactWeight(-1, 1, 1e-30f), 1);
}

// The property that selection relies on: sums do not depend on the order.
TEST(ExactWeight, SumsAreExactInAnyOrder) {
  std::mt19937 random(3);
  for (size_t size : {1u, 7u, 64u, 65u, 1000u, 49152u}) {
    std::vector<float> row = RandomRow(random, size, 4);
    const Distribution distribution = {*std::max_element(row.begin(), row.end()), 1.25f};
    const double total = BestRowPasses().mass({row.data(), size}, distribution);
    std::shuffle(row.begin(), row.end(), random);
    EXPECT_EQ(BestRowPasses().mass({row.data(), size}, distribution), total) << size;
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
