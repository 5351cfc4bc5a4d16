// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace baton::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::max();

std::vector<float> GroupMax(const std::vector<float>& keys) {
  std::vector<float> best(GroupsOf(keys.size()), kLowest);
  for (size_t i = 0; i < keys.size(); ++i) best[i / kGroup] = std::max(best[i / kGroup], keys[i]);
  return best;
}

// Rows that guesses find hard: equal keys, few values, outliers, periods,
// banned tokens, one that has nearly everything.
std::vector<std::vector<float>> HardRows(size_t size) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  std::vector<std::vector<float>> rows(8, std::vector<float>(size));
  for (size_t i = 0; i < size; ++i) {
    rows[0][i] = normal(random);
    rows[1][i] = 1.5f;
    rows[2][i] = static_cast<float>(random() % 5);
    rows[3][i] = i % 64 == 31 ? 9.0f : normal(random) / 1000;
    rows[4][i] = random() % 3 == 0 ? kLowest : normal(random);
    rows[5][i] = i == size / 3 ? 30.0f : normal(random);
    rows[6][i] = static_cast<float>(i) / static_cast<float>(size);
    rows[7][i] = -std::pow(normal(random), 4.0f);
  }
  return rows;
}

// Index in the order of preference of the last element of the shortest prefix.
Prefix Plainly(const std::vector<float>& keys, const std::vector<float>& weights, double target) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keys[a] > keys[b]; });
  double sum = 0;
  for (size_t i : order) {
    sum += weights[i];
    if (sum >= target) return {keys[i], i};
  }
  return {kLowest, keys.size()};
}

TEST(Selector, FindsTheShortestPrefixByCount) {
  for (const RowPasses* passes : AllRowPasses()) {
    Selector selector(passes);
    for (size_t size : {1u, 2u, 100u, 1100u, 20000u}) {
      for (const std::vector<float>& keys : HardRows(size)) {
        const std::vector<float> best = GroupMax(keys);
        const std::vector<float> ones(size, 1);
        for (size_t count : {size_t{1}, size_t{2}, size / 100 + 1, size / 2 + 1, size - 1, size}) {
          if (count == 0 || count > size) continue;
          const Prefix found = selector.Select({keys, best, {}, {}}, static_cast<double>(size),
                                               static_cast<double>(count));
          size_t held = 0;
          for (size_t i = 0; i < size; ++i) held += found.Holds(keys[i], i) ? 1 : 0;
          ASSERT_EQ(held, count) << size;
          const Prefix expected = Plainly(keys, ones, static_cast<double>(count));
          ASSERT_EQ(found.key, expected.key) << size << " " << count;
        }
      }
    }
  }
}

TEST(Selector, FindsTheShortestPrefixByWeight) {
  Selector selector(&BestRowPasses());
  for (size_t size : {1u, 90u, 1100u, 20000u}) {
    size_t number = 0;
    for (const std::vector<float>& keys : HardRows(size)) {
      const std::vector<float> best = GroupMax(keys);
      std::vector<float> weights(size);
      std::vector<double> sums(best.size());
      const double total =
          BestRowPasses().weigh(keys.data(), size, {*std::max_element(best.begin(), best.end()), 1},
                                weights.data(), sums.data());
      for (double share : {1e-9, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0}) {
        const Prefix found = selector.Select({keys, best, weights, sums}, total, share * total);
        const Prefix expected = Plainly(keys, weights, share * total);
        ASSERT_EQ(found.key, expected.key) << size << " row " << number << " " << share;
        ASSERT_EQ(found.last, expected.last) << size << " row " << number << " " << share;
      }
      ++number;
    }
  }
}

// Weights that have nothing to do with the keys, as in typical sampling.
TEST(Selector, KeysAndWeightsMayBeUnrelated) {
  Selector selector(&BestRowPasses());
  std::mt19937 random(6);
  for (const std::vector<float>& keys : HardRows(9000)) {
    const std::vector<float> best = GroupMax(keys);
    std::vector<float> weights(keys.size());
    for (float& weight : weights) weight = static_cast<float>(random() % 3) / 4;
    weights[700] = 1;
    std::vector<double> sums(best.size());
    const double total = BestRowPasses().cut(keys.data(), keys.size(), kLowest, keys.size(),
                                             weights.data(), sums.data());
    for (double share : {0.1, 0.5, 0.95}) {
      const Prefix found = selector.Select({keys, best, weights, sums}, total, share * total);
      const Prefix expected = Plainly(keys, weights, share * total);
      ASSERT_EQ(found.key, expected.key);
      ASSERT_EQ(found.last, expected.last);
    }
  }
}

TEST(Selector, TakesAllWhenNothingReachesTheTarget) {
  Selector selector(&BestRowPasses());
  const std::vector<float> keys(3000, 2), best = GroupMax(keys);
  const Prefix found = selector.Select({keys, best, {}, {}}, 3000, 3000.5);
  EXPECT_TRUE(found.Holds(2, 2999));
}

}  // namespace
}  // namespace baton::sampling
