// SPDX-License-Identifier: Apache-2.0
// The chain against its definition, done plainly by sorting: the same tokens
// with the same weights to the last bit, on every instruction set.
#include "common/sampling/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "common/sampling/exact_math.h"
#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

struct Plain {
  std::vector<size_t> kept;  // by id
  std::vector<double> weights;
  double total = 0;
};

// Rounded to a multiple of 2^-35, as weights are.
float OnGrid(float value) { return value < 0x1p-12f ? (value + 0x1p-12f) - 0x1p-12f : value; }

// Keeps the first of `order` that reach `target`.
void CutAt(double target, const std::vector<float>& weights, std::vector<size_t>& order) {
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    sum += weights[order[i]];
    if (sum < target) continue;
    order.resize(i + 1);
    return;
  }
}

Plain KeepPlainly(const std::vector<float>& row, const Cuts& cuts) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
  const float max = row[order[0]];
  if (cuts.top_k > 0 && cuts.top_k < order.size()) order.resize(cuts.top_k);
  std::vector<float> weights(GroupsOf(row.size()) * kGroup);  // proven elsewhere
  AllRowPasses().back()->weigh({row.data(), row.size()}, {}, {max, cuts.scale}, {}, false,
                               weights.data(), {});
  const auto total = [&] {
    double sum = 0;
    for (size_t i : order) sum += weights[i];
    return sum;
  };
  if (cuts.top_p < 1) CutAt(cuts.top_p * total(), weights, order);
  if (cuts.min_p > 0) {
    const double bound = max + ExactLog(cuts.min_p) / cuts.scale;
    const auto least = static_cast<float>(std::max<double>(bound, -kFloatMax));
    std::erase_if(order, [&](size_t i) { return row[i] < least; });
  }
  if (cuts.typical_p < 1) {
    const auto surprise = [&](size_t i) { return std::min((max - row[i]) * cuts.scale, 87.0f); };
    double sum = 0;
    for (size_t i : order) sum += OnGrid(weights[i] * surprise(i));
    const auto mean = static_cast<float>(sum / total());
    const double target = cuts.typical_p * total();
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const float one = std::abs(surprise(a) - mean), other = std::abs(surprise(b) - mean);
      return one < other || (one == other && a < b);
    });
    CutAt(target, weights, order);
  }
  std::sort(order.begin(), order.end());
  std::erase_if(order, [&](size_t i) { return weights[i] == 0; });
  Plain plain{order, {}, total()};
  for (size_t i : order) plain.weights.push_back(weights[i]);
  return plain;
}

std::vector<float> MakeRow(const std::string& shape, size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> row(size);
  for (float& logit : row) {
    const float x = normal(random);
    if (shape == "flat") logit = 0.05f * x;
    if (shape == "middle") logit = 2 * x;
    if (shape == "peaked") logit = 6 * x;
    if (shape == "few values") logit = std::round(2 * x) / 2;
    if (shape == "equal") logit = 3;
    if (shape == "nearly equal") logit = 1 + 2e-7f * x;
    if (shape == "nearly equal and others") logit = x > 1.8f ? -x : 1 + 2e-7f * x;
    if (shape == "two values") logit = x > 0 ? 1.5f : 1.0f;
    // As many as weigh like those of the other value are as far from the mean.
    if (shape == "typical ties") logit = random() % 3 == 0 ? std::log(2.0f) : 0.0f;
    if (shape == "half equal") logit = x > 0 ? 1.0f : x;
    if (shape == "falling") logit = -0.001f * static_cast<float>(random() % size);
    if (shape == "constrained") logit = random() % 400 == 0 ? 2 * x : -kFloatMax;
  }
  if (shape == "peaked") row[random() % size] = 30;
  // As models make them: a few tokens stand out, the others follow smoothly.
  if (shape == "model") {
    for (size_t i = 0; i < size; ++i) row[i] = 14 - 2.2f * std::log(1 + random() % size);
  }
  return row;
}

std::vector<Cuts> AllCuts(size_t size) {
  std::vector<Cuts> all;
  for (const size_t top_k : {size_t{0}, size_t{1}, size_t{40}, size / 3 + 1}) {
    for (const float top_p : {1e-4f, 0.8f, 0.95f, 1.0f}) {
      for (const float min_p : {0.0f, 0.001f, 0.3f}) {
        for (const float typical_p : {0.2f, 0.95f, 1.0f}) {
          const float scale = all.size() % 3 == 0 ? 1.25f : all.size() % 3 == 1 ? 1.0f : 0.01f;
          all.push_back({top_k, scale, top_p, min_p, typical_p});
        }
      }
    }
  }
  return all;
}

void ExpectSame(const Chain& chain, const Plain& plain, const std::string& where) {
  ASSERT_EQ(chain.total(), plain.total) << where;
  std::vector<KeptToken> kept = chain.Kept();
  std::sort(kept.begin(), kept.end(),
            [](const KeptToken& a, const KeptToken& b) { return a.id < b.id; });
  ASSERT_EQ(kept.size(), plain.kept.size()) << where;
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i].id, plain.kept[i]) << where;
    ASSERT_EQ(kept[i].weight, plain.weights[i]) << where;
  }
  for (const double uniform : {0.0, 0.1, 0.5, 0.77, 1 - 0x1p-53}) {
    double sum = 0;
    size_t i = 0;
    const double point = std::min(uniform * plain.total, std::nextafter(plain.total, 0.0));
    while ((sum += plain.weights[i]) <= point) ++i;
    ASSERT_EQ(chain.Draw(uniform), plain.kept[i]) << where << " " << uniform;
  }
}

constexpr const char* kShapes[] = {"flat",
                                   "middle",
                                   "peaked",
                                   "few values",
                                   "equal",
                                   "nearly equal",
                                   "nearly equal and others",
                                   "two values",
                                   "typical ties",
                                   "half equal",
                                   "falling",
                                   "model",
                                   "constrained"};

TEST(Chain, EqualsItsDefinitionOnEveryInstructionSet) {
  std::vector<Chain> chains;
  for (const RowPasses* passes : AllRowPasses()) chains.emplace_back(passes);
  for (const size_t size : {1u, 2u, 70u, 700u, 5000u}) {
    for (const char* shape : kShapes) {
      const std::vector<float> row = MakeRow(shape, size, static_cast<uint32_t>(size));
      const std::vector<Cuts> all = AllCuts(size);
      // Sanitizers are slow; the numbers are the release build's to check.
      const size_t step = (size > 1000 ? 5 : 1) * (BATON_SANITIZED ? 7 : 1);
      for (size_t i = 0; i < all.size(); i += step) {
        const Plain plain = KeepPlainly(row, all[i]);
        for (size_t isa = 0; isa < chains.size(); ++isa) {
          ASSERT_TRUE(chains[isa].Start(row));
          chains[isa].Keep(all[i]);
          ASSERT_NO_FATAL_FAILURE(ExpectSame(chains[isa], plain,
                                             std::string(AllRowPasses()[isa]->isa) + " " + shape +
                                                 " " + std::to_string(size) + " cuts " +
                                                 std::to_string(i)));
        }
      }
    }
  }
}

TEST(Chain, EqualsItsDefinitionAtFullVocabulary) {
  Chain chain;
  for (const char* shape : kShapes) {
    const std::vector<float> row = MakeRow(shape, 65024, 9);
    const std::vector<Cuts> all = AllCuts(row.size());
    for (size_t i = 3; i < all.size(); i += 61) {
      ASSERT_TRUE(chain.Start(row));
      chain.Keep(all[i]);
      ASSERT_NO_FATAL_FAILURE(ExpectSame(chain, KeepPlainly(row, all[i]),
                                         std::string(shape) + " cuts " + std::to_string(i)));
    }
  }
}

// Plateaus and spreads of every width, mixed and sorted: where guesses fail.
TEST(Chain, EqualsItsDefinitionOnMixedRows) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 1);
  std::vector<Chain> chains;
  for (const RowPasses* passes : AllRowPasses()) chains.emplace_back(passes);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> row(1000 + random() % 12000);
    struct Part {
      float center, deviation, step;
    } parts[3];
    for (Part& part : parts) {
      const float deviation = std::pow(10.0f, -static_cast<float>(random() % 8));
      part = {3 * normal(random), deviation, random() % 2 == 0 ? deviation / 3 : 1e-9f};
    }
    for (float& logit : row) {
      const Part& part = parts[random() % (1 + round % 3)];
      logit = part.center + std::round(normal(random) * part.deviation / part.step) * part.step;
    }
    if (round % 4 == 1) std::sort(row.begin(), row.end());
    if (round % 4 == 2) std::sort(row.rbegin(), row.rend());
    const std::vector<Cuts> all = AllCuts(row.size());
    for (int i = 0; i < 4; ++i) {
      const Cuts& cuts = all[random() % all.size()];
      const Plain plain = KeepPlainly(row, cuts);
      for (size_t isa = 0; isa < chains.size(); ++isa) {
        ASSERT_TRUE(chains[isa].Start(row));
        chains[isa].Keep(cuts);
        ASSERT_NO_FATAL_FAILURE(
            ExpectSame(chains[isa], plain,
                       std::string(AllRowPasses()[isa]->isa) + " round " + std::to_string(round)));
      }
    }
  }
}

TEST(Chain, BestAreTheFirstOfTheSortedRow) {
  for (const RowPasses* passes : AllRowPasses()) {
    Chain chain(passes);
    for (const char* shape : kShapes) {
      const std::vector<float> row = MakeRow(shape, 9000, 5);
      std::vector<TokenId> order(row.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](TokenId a, TokenId b) { return row[a] > row[b]; });
      ASSERT_TRUE(chain.Start(row));
      EXPECT_EQ(chain.argmax(), order[0]);
      for (const size_t k : {0u, 1u, 5u, 20u, 300u, 9000u, 20000u}) {
        const std::vector<KeptToken> best = chain.Best(k);
        ASSERT_EQ(best.size(), std::min(k, row.size())) << shape;
        for (size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].id, order[i]) << shape << " " << k;
          ASSERT_EQ(best[i].logit, row[order[i]]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::sampling
