// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "tests/common/sampling/reference_sampler.h"
#include "tests/testing/test_data.h"

namespace baton::sampling {
namespace {

using ::testing::ElementsAre;

std::vector<float> RandomLogits(std::mt19937& random, size_t size, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

Sample SampleOk(std::span<const float> logits, std::span<const TokenId> history, uint32_t index,
                const Params& params) {
  const auto sample = SampleToken(logits, static_cast<uint32_t>(logits.size()),
                                  {.tokens = history, .output_index = index}, params);
  EXPECT_TRUE(sample.ok()) << sample.status();
  return sample.ok() ? *sample : Sample();
}

TokenId Token(std::span<const float> logits, const Params& params, uint32_t index = 0,
              std::span<const TokenId> history = {}) {
  return SampleOk(logits, history, index, params).token;
}

TEST(SampleToken, GreedyTakesTheLowestIdOfEqualLogits) {
  for (size_t size : {1u, 3u, 63u, 64u, 65u, 200u, 1000u}) {
    std::vector<float> logits(size, -1.0f);
    for (size_t best = 0; best < size; best += 7) {
      logits[best] = 2;
      logits[size - 1] = 2;
      EXPECT_EQ(Token(logits, {}), best);
      logits[best] = -1;
    }
  }
}

// Against a plain double-precision implementation, over sizes, spreads and all
// combinations of filters.
TEST(SampleToken, EqualsTheReference) {
  std::mt19937 random(11);
  int compared = 0, near = 0;
  for (size_t size : {2u, 300u, 3000u}) {
    for (float deviation : {0.01f, 1.0f, 4.0f}) {
      const std::vector<float> logits = RandomLogits(random, size, deviation);
      std::vector<TokenId> history(40);
      for (TokenId& token : history) token = static_cast<TokenId>(random() % size);
      for (float temperature : {0.0f, 0.3f, 1.0f, 5.0f, 100.0f}) {
        for (uint32_t top_k : {0u, 1u, 20u, 400u, 1u << 30}) {
          for (float top_p : {1e-4f, 0.5f, 0.95f, 1.0f}) {
            const Params params{.temperature = temperature,
                                .top_k = top_k,
                                .top_p = top_p,
                                .min_p = random() % 2 == 0 ? 0.0f : 0.02f,
                                .typical_p = random() % 2 == 0 ? 1.0f : 0.8f,
                                .seed = random(),
                                .repetition_penalty = random() % 2 == 0 ? 1.0f : 1.3f,
                                .presence_penalty = random() % 2 == 0 ? 0.0f : 0.7f,
                                .frequency_penalty = random() % 2 == 0 ? 0.0f : -0.4f};
            const auto index = static_cast<uint32_t>(random() % 40);
            const ReferenceResult expected =
                SampleByReference(logits, {.tokens = history, .output_index = index},
                                  CounterUniform(params.seed, 0, index), params);
            ++compared;
            if (expected.margin < 1e-6) {
              ++near;
              continue;
            }
            ASSERT_EQ(Token(logits, params, index, history), expected.token)
                << "size " << size << " deviation " << deviation << " T " << temperature << " k "
                << top_k << " p " << top_p;
          }
        }
      }
    }
  }
  EXPECT_LT(near, compared / 20);
}

// A vocabulary of the size of a real one, where top-p widens several times.
TEST(SampleToken, EqualsTheReferenceAtFullVocabulary) {
  std::mt19937 random(12);
  for (float deviation : {0.5f, 3.0f}) {
    const std::vector<float> logits = RandomLogits(random, 65024, deviation);
    for (float top_p : {0.5f, 0.99f, 1.0f}) {
      const Params params{.temperature = 0.9f, .top_p = top_p, .seed = random()};
      const ReferenceResult expected =
          SampleByReference(logits, {}, CounterUniform(params.seed, 0, 3), params);
      if (expected.margin < 1e-7) continue;
      EXPECT_EQ(Token(logits, params, 3), expected.token) << deviation << " " << top_p;
    }
  }
}

TEST(SampleToken, FilterKeepsTheGoldenIdsWithTheirProbabilities) {
  for (const char* name : {"a", "b"}) {
    const std::string path =
        testing::SharedData(std::string("models/golden-chatglm2-tiny/") + name + "/golden.json");
    BATON_NEED_DATA(path);
    const auto golden = nlohmann::json::parse(std::ifstream(path));
    const auto logits = golden["logits_prompt_last"].get<std::vector<float>>();
    for (const auto& filter : golden["sampling_filters_on_last_prompt_logits_own_numpy"]) {
      Params params{
          .temperature = filter["temperature"], .top_k = filter["top_k"], .top_p = filter["top_p"]};
      const auto kept = filter["kept_ids"].get<std::vector<TokenId>>();
      const auto probabilities = filter["probs"].get<std::vector<double>>();
      const ReferenceResult reference = SampleByReference(logits, {}, 0.5, params);
      EXPECT_EQ(reference.kept, kept);
      constexpr int kDraws = 1500;
      std::map<TokenId, int> drawn;
      for (uint32_t i = 0; i < kDraws; ++i) ++drawn[Token(logits, params, i)];
      EXPECT_LE(drawn.size(), kept.size());
      for (size_t i = 0; i < kept.size(); ++i) {
        const double p = probabilities[i];
        const double deviation = std::sqrt(p * (1 - p) / kDraws);
        EXPECT_NEAR(drawn[kept[i]] / double{kDraws}, p, 5 * deviation) << kept[i];
      }
    }
  }
}

TEST(SampleToken, GoldenLogprobsOfTheGreedyTokens) {
  const std::string path = testing::SharedData("models/golden-chatglm2-tiny/a/golden.json");
  BATON_NEED_DATA(path);
  const auto golden = nlohmann::json::parse(std::ifstream(path));
  const auto logits = golden["logits_prompt_last"].get<std::vector<float>>();
  const Sample sample = SampleOk(logits, {}, 0, {.logprobs = 2});
  EXPECT_EQ(sample.token, golden["greedy_ids"][0].get<TokenId>());
  EXPECT_NEAR(sample.logprobs->logprob, golden["greedy_logprobs"][0].get<double>(), 1e-6);
}

TEST(SampleToken, EqualLogitsAreKeptByLowerId) {
  const std::vector<float> logits(500, 1.5f);
  std::map<TokenId, int> drawn;
  for (uint32_t i = 0; i < 300; ++i) ++drawn[Token(logits, {.temperature = 1, .top_k = 3}, i)];
  EXPECT_EQ(drawn.size(), 3u);
  EXPECT_EQ(drawn.rbegin()->first, 2u);

  drawn.clear();
  // 100 of 500 equal tokens reach a fifth of the mass.
  for (uint32_t i = 0; i < 1200; ++i) {
    ++drawn[Token(logits, {.temperature = 1, .top_p = 0.1999f}, i)];
  }
  EXPECT_EQ(drawn.size(), 100u);
  EXPECT_EQ(drawn.rbegin()->first, 99u);
}

TEST(SampleToken, TinyTemperatureIsGreedy) {
  std::mt19937 random(13);
  const std::vector<float> logits = RandomLogits(random, 3000, 5);
  const TokenId greedy = Token(logits, {});
  for (float temperature : {std::numeric_limits<float>::denorm_min(), 1e-38f, 1e-7f, 1e-4f}) {
    for (float top_p : {0.5f, 1.0f}) {
      for (uint32_t top_k : {0u, 40u}) {
        EXPECT_EQ(Token(logits, {.temperature = temperature, .top_k = top_k, .top_p = top_p}, 7),
                  greedy);
      }
    }
  }
  const std::vector<float> huge = {-3e38f, 3e38f, 1, 0};
  EXPECT_EQ(Token(huge, {.temperature = 1e-4f}), 1u);
  EXPECT_EQ(Token(huge, {.temperature = 100, .top_p = 0.9f, .repetition_penalty = 1e-9f}, 0,
                  std::vector<TokenId>{0, 1}),
            1u);
}

TEST(SampleToken, PaddedIdsAreNeverPicked) {
  std::vector<float> logits(130, 0.0f);
  for (size_t i = 100; i < 130; ++i) logits[i] = 1000;
  logits[120] = std::numeric_limits<float>::quiet_NaN();
  for (uint32_t i = 0; i < 1000; ++i) {
    const auto sample =
        SampleToken(logits, 100, {.output_index = i}, {.temperature = 2, .logprobs = 20});
    ASSERT_TRUE(sample.ok());
    ASSERT_LT(sample->token, 100u);
    EXPECT_NEAR(sample->logprobs->logprob, -std::log(100.0), 1e-6);
    for (const auto& [token, unused] : sample->logprobs->top) EXPECT_LT(token, 100u);
  }
}

TEST(SampleToken, NanOrInfiniteLogitIsInternal) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    for (size_t size : {5u, 64u, 150u}) {
      for (size_t at : {size_t{0}, size / 2, size - 1}) {
        std::vector<float> logits(size, 1.0f);
        logits[at] = bad;
        for (float temperature : {0.0f, 1.0f}) {
          EXPECT_EQ(
              SampleToken(logits, static_cast<uint32_t>(size), {}, {.temperature = temperature})
                  .status()
                  .code(),
              absl::StatusCode::kInternal);
        }
      }
    }
  }
}

TEST(SampleToken, RepetitionPenaltyFollowsTheSignAndCountsATokenOnce) {
  // 0 and 1 lead; penalized 0 falls behind 1, and penalized 1 behind 2.
  const std::vector<float> logits = {4.0f, 3.0f, 2.0f, -1.0f};
  const Params params{.repetition_penalty = 1.9f};
  EXPECT_EQ(Token(logits, params), 0u);
  EXPECT_EQ(Token(logits, params, 0, std::vector<TokenId>{0}), 1u);
  EXPECT_EQ(Token(logits, params, 0, std::vector<TokenId>{0, 0, 0, 0}), 1u);
  EXPECT_EQ(Token(logits, params, 0, std::vector<TokenId>{0, 1, 1}), 0u);  // 2.1 beats 2
  // Negative logits are multiplied.
  const std::vector<float> negative = {-1.0f, -1.5f};
  EXPECT_EQ(Token(negative, params, 0, std::vector<TokenId>{0}), 1u);
  // History outside the vocabulary is ignored.
  EXPECT_EQ(Token(logits, params, 0, std::vector<TokenId>{77}), 0u);
}

TEST(SampleToken, LogprobsComeFromTheUnmodifiedLogits) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f};
  const double total = std::exp(1) + 2 * std::exp(3) + std::exp(2);
  const Sample sample =
      SampleOk(logits, std::vector<TokenId>{1}, 0, {.repetition_penalty = 5, .logprobs = 3});
  EXPECT_EQ(sample.token, 3u);
  EXPECT_NEAR(sample.logprobs->logprob, std::log(std::exp(3) / total), 1e-6);
  std::vector<TokenId> top;
  for (const auto& [token, unused] : sample.logprobs->top) top.push_back(token);
  EXPECT_THAT(top, ElementsAre(1, 3, 2));
  EXPECT_NEAR(sample.logprobs->top[2].second, std::log(std::exp(2) / total), 1e-6);

  EXPECT_TRUE(SampleOk(logits, {}, 0, {.logprobs = 0}).logprobs->top.empty());
  EXPECT_EQ(SampleOk(logits, {}, 0, {.logprobs = 20}).logprobs->top.size(), 4u);
  EXPECT_FALSE(SampleOk(logits, {}, 0, {}).logprobs.has_value());
}

// Alternatives that weigh nothing on the grid of the weights are listed, too.
TEST(SampleToken, TopLogprobsAreAsManyAsAskedForBesideATokenThatHasEverything) {
  std::vector<float> logits(3000, -1.0f);
  logits[70] = 60;
  logits[2500] = 0;
  const Sample sample = SampleOk(logits, {}, 0, {.temperature = 1, .logprobs = 4});
  EXPECT_EQ(sample.token, 70u);
  std::vector<TokenId> top;
  for (const auto& [token, unused] : sample.logprobs->top) top.push_back(token);
  EXPECT_THAT(top, ElementsAre(70, 2500, 0, 1));
  EXPECT_EQ(sample.logprobs->top[1].second, -60);
}

// Every thread and every buffer state gives the same token.
TEST(SampleToken, IsAPureFunction) {
  std::mt19937 random(14);
  const std::vector<float> logits = RandomLogits(random, 2000, 2);
  const std::vector<float> other = RandomLogits(random, 5000, 1);
  const Params params{.temperature = 1, .top_p = 0.9f, .seed = 5};
  const TokenId token = Token(logits, params, 9);
  for (int i = 0; i < 20; ++i) {
    Token(other, {.temperature = 2, .top_k = 100, .top_p = 0.5f, .seed = random()}, 1);
    EXPECT_EQ(Token(logits, params, 9), token);
  }
}

}  // namespace
}  // namespace baton::sampling
