// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

namespace baton::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::max();

std::vector<float> GroupMax(const std::vector<float>& keys) {
  std::vector<float> best(GroupsOf(keys.size()), kLowest);
  for (size_t i = 0; i < keys.size(); ++i) best[i / kGroup] = std::max(best[i / kGroup], keys[i]);
  return best;
}

// Of every kind: nothing known, right, too high, too low, a single key.
std::vector<Range> Guesses(const std::vector<float>& keys, const Prefix& end) {
  const float key = end.key == kLowest ? keys[0] : end.key;
  return {{},
          {key - 0.5f, key + 0.5f},
          {key, key},
          {key + 1, key + 2},
          {key - 2, key - 1},
          {key - 1e-3f, std::numeric_limits<float>::infinity()}};
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

void ExpectPrefix(const Selection& found, const Prefix& expected, const std::vector<float>& keys,
                  const std::vector<float>& weights, const std::string& where) {
  double mass = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(found.prefix.Holds(keys[i], i), expected.Holds(keys[i], i)) << where << " at " << i;
    mass += expected.Holds(keys[i], i) ? weights[i] : 0;
  }
  ASSERT_EQ(found.mass, mass) << where;
}

TEST(Selector, FindsTheShortestPrefixByCountWhateverTheGuess) {
  for (const RowPasses* passes : AllRowPasses()) {
    Selector selector(passes);
    for (size_t size : {1u, 2u, 100u, 1100u, 9000u}) {
      for (const std::vector<float>& keys : HardRows(size)) {
        const std::vector<float> best = GroupMax(keys);
        const std::vector<float> ones(size, 1);
        for (size_t count : {size_t{1}, size / 100 + 1, size / 2 + 1, size}) {
          if (count == 0 || count > size) continue;
          const auto target = static_cast<double>(count);
          const Prefix expected = Plainly(keys, ones, target);
          for (const Range& guess : Guesses(keys, expected)) {
            const Selection found =
                selector.Select({{keys.data(), size, best.data()}}, guess, target);
            ASSERT_NO_FATAL_FAILURE(
                ExpectPrefix(found, expected, keys, ones, passes->isa + std::to_string(size)));
          }
        }
      }
    }
  }
}

// The weights of a row, with room for whole groups.
std::vector<float> WeightsOf(const std::vector<float>& row, const Distribution& distribution) {
  std::vector<float> weights(GroupsOf(row.size()) * kGroup);
  BestRowPasses().weigh({row.data(), row.size()}, {}, distribution, {}, false, weights.data(), {});
  return weights;
}

TEST(Selector, FindsTheShortestPrefixByWeightWhateverTheGuess) {
  Selector selector(&BestRowPasses());
  for (size_t size : {1u, 90u, 1100u, 9000u}) {
    size_t number = 0;
    for (const std::vector<float>& keys : HardRows(size)) {
      const std::vector<float> best = GroupMax(keys);
      const std::vector<float> weights =
          WeightsOf(keys, {*std::max_element(best.begin(), best.end()), 1});
      const double total = std::accumulate(weights.begin(), weights.begin() + size, 0.0);
      for (double share : {1e-9, 0.3, 0.9, 0.999, 1.0}) {
        const Prefix expected = Plainly(keys, weights, share * total);
        for (const Range& guess : Guesses(keys, expected)) {
          const Selectable from = {{keys.data(), size, best.data()}, {}, nullptr, weights.data()};
          const Selection found = selector.Select(from, guess, share * total);
          ASSERT_NO_FATAL_FAILURE(
              ExpectPrefix(found, expected, keys, weights,
                           std::to_string(size) + " row " + std::to_string(number)));
          if (!found.in_range) continue;
          std::vector<double> blocks(BlocksOf(size));
          ASSERT_TRUE(selector.BlockMasses(from, found.in_found, blocks.data()));
          for (size_t i = 0; i < size; ++i) {
            blocks[i / kBlock] -= found.prefix.Holds(keys[i], i) ? weights[i] : 0;
          }
          for (double rest : blocks) ASSERT_EQ(rest, 0) << size << " row " << number;
        }
      }
      ++number;
    }
  }
}

// Within a prefix of the logits, by an order that has little to do with them.
TEST(Selector, FindsTheMostTypicalOfAPrefix) {
  Selector selector(&BestRowPasses());
  for (const std::vector<float>& row : HardRows(9000)) {
    const std::vector<float> best = GroupMax(row);
    const Distribution distribution = {*std::max_element(best.begin(), best.end()), 0.7f};
    const std::vector<float> weights = WeightsOf(row, distribution);
    const Prefix prefix = Plainly(row, std::vector<float>(row.size(), 1), 6000);
    const Typicality typicality = {distribution, 2.5f};
    std::vector<float> keys(GroupsOf(row.size()) * kGroup), held = weights;
    BestRowPasses().typical_keys(row.data(), row.size(), typicality, keys.data());
    keys.resize(row.size());
    double total = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      if (!prefix.Holds(row[i], i)) held[i] = 0;
      total += held[i];
    }
    for (double share : {0.1, 0.5, 0.95}) {
      const Prefix expected = Plainly(keys, held, share * total);
      for (const Range& guess : Guesses(keys, expected)) {
        const Selection found = selector.Select(
            {{row.data(), row.size(), best.data()}, prefix, &typicality, weights.data()}, guess,
            share * total);
        double mass = 0;
        for (size_t i = 0; i < row.size(); ++i) {
          mass += found.prefix.Holds(keys[i], i) ? held[i] : 0;
          if (held[i] == 0) continue;
          ASSERT_EQ(found.prefix.Holds(keys[i], i), expected.Holds(keys[i], i)) << i;
        }
        ASSERT_EQ(found.mass, mass);
      }
    }
  }
}

TEST(Selector, TakesAllWhenNothingReachesTheTarget) {
  Selector selector(&BestRowPasses());
  const std::vector<float> keys(3000, 2), best = GroupMax(keys);
  const Selection found = selector.Select({{keys.data(), 3000, best.data()}}, {}, 3000.5);
  EXPECT_TRUE(found.prefix.Holds(2, 2999));
}

}  // namespace
}  // namespace baton::sampling
