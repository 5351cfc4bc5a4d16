// SPDX-License-Identifier: Apache-2.0
// Cases in which another order of the steps would keep other tokens, and the
// distribution of many draws against exact probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "common/sampling/sampler.h"
#include "tests/common/sampling/reference_sampler.h"

namespace baton::sampling {
namespace {

using ::testing::ElementsAre;

// Ids that can be drawn.
std::vector<TokenId> KeptIds(const std::vector<double>& probabilities, const Params& params,
                             const Position& position = {}) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  const auto steps =
      ExplainSampling(logits, static_cast<uint32_t>(logits.size()), position, params, 100);
  EXPECT_TRUE(steps.ok());
  std::vector<TokenId> ids;
  for (const auto& [id, p] : steps->back().top) ids.push_back(id);
  return ids;
}

TEST(ChainOrder, TemperatureComesBeforeTopP) {
  // Flattened, three are needed for 0.75; as they are, two.
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_p = 0.75f}), ElementsAre(0, 1));
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 10, .top_p = 0.75f}), ElementsAre(0, 1, 2));
}

TEST(ChainOrder, TheConstraintComesBeforeTopK) {
  const std::vector<uint64_t> allowed = {0b110};
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_k = 1}, {.allowed = allowed}),
              ElementsAre(1));
}

TEST(ChainOrder, TopKComesBeforeTopP) {
  // Of the best two, 0.5 / 0.8 = 0.625 is the first's: enough for 0.6, though
  // it is less than 0.6 of all.
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_k = 2, .top_p = 0.6f}),
              ElementsAre(0));
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_p = 0.6f}), ElementsAre(0, 1));
}

TEST(ChainOrder, PenaltiesAndBiasComeBeforeTopK) {
  const std::vector<TokenId> output = {0};
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_k = 1, .presence_penalty = 2},
                      {.tokens = output, .output_index = 1}),
              ElementsAre(1));
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_k = 1, .logit_bias = {{2, 3.0f}}}),
              ElementsAre(2));
  EXPECT_THAT(KeptIds({0.5, 0.3, 0.2}, {.temperature = 1, .top_k = 1, .bad_sequences = {{0}}}),
              ElementsAre(1));
}

TEST(ChainOrder, TopPComesBeforeMinPAndMinPBeforeTypical) {
  // min-p first would leave 0.4, 0.3 and 0.2 of 0.9, of which 0.7 is more than
  // 0.75: the third would go. After top-p it stays.
  EXPECT_THAT(KeptIds({0.4, 0.3, 0.2, 0.1}, {.temperature = 1, .top_p = 0.75f, .min_p = 0.3f}),
              ElementsAre(0, 1, 2));
  // Of 0.6, 0.3 and 0.1 the second is the most typical. Without the third the
  // entropy is lower, and the first is.
  EXPECT_THAT(KeptIds({0.6, 0.3, 0.1}, {.temperature = 1, .typical_p = 0.2f}), ElementsAre(1));
  EXPECT_THAT(KeptIds({0.6, 0.3, 0.1}, {.temperature = 1, .min_p = 0.2f, .typical_p = 0.2f}),
              ElementsAre(0));
}

TEST(ChainOrder, EveryWayToKeepOneTokenIsGreedy) {
  std::mt19937 random(21);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(5000);
  for (float& logit : logits) logit = normal(random);
  const auto token = [&](const Params& params) {
    return SampleToken(logits, 5000, {.output_index = 3}, params)->token;
  };
  const TokenId greedy = token({});
  EXPECT_EQ(token({.temperature = 1, .top_k = 1}), greedy);
  EXPECT_EQ(token({.temperature = 1, .top_p = 1e-6f}), greedy);
  EXPECT_EQ(token({.temperature = 1, .min_p = 1}), greedy);
  EXPECT_EQ(token({.temperature = 1e-3f}), greedy);
}

// Chi-square over 200,000 draws with fixed seeds; tokens expected less than 10
// times are counted together. The bound is exceeded once in 10,000 by chance.
void ExpectDistribution(std::span<const float> logits, const Params& base,
                        const Position& position = {}) {
  const ReferenceResult exact = SampleByReference(logits, position, 0.5, base);
  constexpr uint32_t kDraws = 200'000;
  std::map<TokenId, double> drawn;
  Params params = base;
  for (uint32_t i = 0; i < kDraws; ++i) {
    params.seed = 1000 + i;
    ++drawn[SampleToken(logits, static_cast<uint32_t>(logits.size()), position, params)->token];
  }
  double chi = 0, rest_expected = 0, rest_drawn = 0, counted = 0;
  int cells = 0;
  for (size_t i = 0; i < exact.kept.size(); ++i) {
    const double expected = exact.probabilities[i] * kDraws;
    const double got = drawn[exact.kept[i]];
    counted += got;
    if (expected < 10) {
      rest_expected += expected;
      rest_drawn += got;
      continue;
    }
    chi += (got - expected) * (got - expected) / expected;
    ++cells;
  }
  EXPECT_EQ(counted, kDraws);  // nothing outside of what is kept
  if (rest_expected >= 10) {
    chi += (rest_drawn - rest_expected) * (rest_drawn - rest_expected) / rest_expected;
    ++cells;
  }
  // Wilson and Hilferty's approximation of the quantile.
  const double degrees = std::max(cells - 1, 1);
  const double spread = 2 / (9 * degrees);
  EXPECT_LT(chi, degrees * std::pow(1 - spread + 3.719 * std::sqrt(spread), 3)) << cells;
}

class SampledDistribution : public ::testing::TestWithParam<Params> {};

TEST_P(SampledDistribution, OfManyDrawsIsExact) {
  std::mt19937 random(31);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(60);
  for (float& logit : logits) logit = normal(random);
  logits[17] = logits[3];  // equal logits
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 5, 6, 17, 17};
  const std::vector<TokenId> ends = {3, 40};
  ExpectDistribution(logits, GetParam(), {.tokens = tokens, .output_index = 5, .end_tokens = ends});
}

INSTANTIATE_TEST_SUITE_P(
    EachStep, SampledDistribution,
    ::testing::Values(Params{.temperature = 1}, Params{.temperature = 0.4f},
                      Params{.temperature = 3, .top_k = 7}, Params{.temperature = 1, .top_p = 0.8f},
                      Params{.temperature = 1, .min_p = 0.1f},
                      Params{.temperature = 1, .typical_p = 0.6f},
                      Params{.temperature = 1, .repetition_penalty = 1.7f},
                      Params{.temperature = 1, .presence_penalty = 1.2f},
                      Params{.temperature = 1, .frequency_penalty = 0.8f},
                      Params{.temperature = 1, .logit_bias = {{7, 4.0f}, {9, -3.0f}}},
                      Params{.temperature = 1, .bad_sequences = {{8}, {17, 10}, {6, 17, 11}}},
                      Params{.temperature = 1, .min_tokens = 6},
                      Params{.temperature = 0.9f,
                             .top_k = 30,
                             .top_p = 0.95f,
                             .min_p = 0.01f,
                             .typical_p = 0.9f,
                             .repetition_penalty = 1.2f,
                             .presence_penalty = 0.3f,
                             .frequency_penalty = 0.2f}));

}  // namespace
}  // namespace baton::sampling
