// SPDX-License-Identifier: Apache-2.0
// The sampling kernel against common/sampling: the same token, always.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/sampling/exact_math.h"
#include "common/sampling/sampler.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::RandomFloats;
using sampling::Params;
using sampling::Position;

// Rows of a batch, as the host prepares them for the kernel.
struct Batch {
  std::vector<SampleRow> rows;
  std::vector<TokenCount> history;
  std::vector<TokenBias> biases;
  std::vector<uint32_t> banned;
  std::vector<uint32_t> masks;

  void Add(const Params& params, const Position& position, uint32_t usable) {
    SampleRow row{};
    row.usable_vocabulary = usable;
    row.top_k = params.top_k;
    row.temperature = params.temperature;
    row.top_p = params.top_p;
    row.min_p = params.min_p;
    row.repetition_penalty = params.repetition_penalty;
    row.presence_penalty = params.presence_penalty;
    row.frequency_penalty = params.frequency_penalty;
    row.seed = params.seed;
    row.choice = position.choice;
    row.output_index = position.output_index;
    sampling::TokenHistory counts;
    counts.Update(position.tokens, position.prompt_tokens());
    row.history_begin = static_cast<uint32_t>(history.size());
    for (const auto& entry : counts.entries()) history.push_back({entry.token, entry.outputs});
    row.history_end = static_cast<uint32_t>(history.size());
    row.bias_begin = static_cast<uint32_t>(biases.size());
    for (const auto& bias : params.logit_bias) biases.push_back({bias.first, bias.second});
    row.bias_end = static_cast<uint32_t>(biases.size());
    row.banned_begin = static_cast<uint32_t>(banned.size());
    for (TokenId token : sampling::BannedTokens(params, position)) banned.push_back(token);
    row.banned_end = static_cast<uint32_t>(banned.size());
    row.mask_begin = static_cast<uint32_t>(masks.size());
    for (const uint64_t word : position.allowed) {
      masks.push_back(static_cast<uint32_t>(word));
      masks.push_back(static_cast<uint32_t>(word >> 32));
    }
    row.mask_words = static_cast<uint32_t>(masks.size()) - row.mask_begin;
    rows.push_back(row);
  }

  std::vector<uint32_t> Run(std::vector<float> logits, uint32_t stride) const {
    std::vector<float> weights(logits.size());
    std::vector<uint32_t> tokens(rows.size(), 12345);
    Sample({rows.data(), history.data(), biases.data(), banned.data(), masks.data(), logits.data(),
            weights.data(), tokens.data(), static_cast<uint32_t>(rows.size()), stride},
           nullptr);
    return tokens;
  }
};

uint32_t OnGpu(std::span<const float> logits, uint32_t usable, const Position& position,
               const Params& params) {
  Batch batch;
  batch.Add(params, position, usable);
  return batch.Run({logits.begin(), logits.end()}, static_cast<uint32_t>(logits.size()))[0];
}

void ExpectSame(std::span<const float> logits, const Position& position, const Params& params,
                const std::string& what) {
  const auto expected = SampleToken(logits, static_cast<uint32_t>(logits.size()), position, params);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(OnGpu(logits, static_cast<uint32_t>(logits.size()), position, params), expected->token)
      << what;
}

Params RandomParams(std::mt19937& random) {
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  Params params;
  params.temperature = pick(0.0f, 0.3f, 0.8f, 1.0f, 1.7f, 100.0f, 1e-4f);
  params.top_k = pick(0u, 1u, 2u, 40u, 300u, 100000u);
  params.top_p = pick(1.0f, 0.99f, 0.9f, 0.5f, 0.01f);
  params.min_p = pick(0.0f, 0.05f, 0.5f, 1.0f);
  params.seed = random();
  if (random() % 2 == 0) {
    params.repetition_penalty = pick(1.0f, 1.3f, 0.7f);
    params.presence_penalty = pick(0.0f, 0.5f, -0.5f);
    params.frequency_penalty = pick(0.0f, 0.25f);
  }
  return params;
}

TEST(GpuSampling, TokenIsTheCpusForRandomRowsAndParameters) {
  std::mt19937 random(1);
  for (int round = 0; round < 250; ++round) {
    const uint32_t size = std::vector<uint32_t>{1, 2, 63, 64, 65, 672, 5000}[random() % 7];
    const auto logits = RandomFloats(size, random(), round % 3 == 0 ? 0.5f : 12);
    std::vector<TokenId> tokens(random() % 50);
    for (TokenId& token : tokens) token = random() % (size + 2);
    Position position;
    position.tokens = tokens;
    position.output_index = static_cast<uint32_t>(tokens.size() / 2);
    position.choice = random() % 3;
    ExpectSame(logits, position, RandomParams(random), "round " + std::to_string(round));
  }
}

// Few distinct values: ties are what decides.
TEST(GpuSampling, TiesFallByIdAsOnTheCpu) {
  std::mt19937 random(2);
  for (int round = 0; round < 150; ++round) {
    std::vector<float> logits(900);
    for (float& logit : logits) logit = static_cast<float>(random() % 3) - 1;
    logits[5] = -0.0f;
    logits[700] = 0.0f;
    Params params = RandomParams(random);
    if (round % 2 == 0) params.temperature = 1;
    ExpectSame(logits, {}, params, "round " + std::to_string(round));
  }
}

TEST(GpuSampling, LargeVocabularies) {
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    const auto logits = RandomFloats(65024, 20 + round, 8);
    Params params = RandomParams(random);
    params.temperature = 0.9f;
    ExpectSame(logits, {}, params, "round " + std::to_string(round));
  }
}

// Also those that round to the grid.
TEST(GpuSampling, WeightsAreThoseOfTheCpu) {
  std::vector<float> logits(3000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -static_cast<float>(i) / 80;
  for (float temperature : {0.5f, 1.0f, 3.0f}) {
    Batch batch;
    Params params;
    params.temperature = temperature;
    batch.Add(params, {}, 3000);
    std::vector<float> weights(logits.size());
    std::vector<uint32_t> token(1);
    Sample({batch.rows.data(), nullptr, nullptr, nullptr, nullptr, logits.data(), weights.data(),
            token.data(), 1, 3000},
           nullptr);
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(weights[i], sampling::ExactWeight(logits[i], 0, 1 / temperature)) << logits[i];
    }
  }
}

TEST(GpuSampling, BiasesOfOneTokenAddUpInOrder) {
  auto logits = RandomFloats(100, 4, 2);
  Params params;
  params.logit_bias = {{7, 3e38f}, {3, 1}, {7, 3e38f}, {7, -3e38f}, {99, -5}, {7, 1e37f}};
  ExpectSame(logits, {}, params, "clamped sum");
  params.logit_bias = {{7, 50}, {7, -100}, {3, 1}};
  params.temperature = 1;
  ExpectSame(logits, {}, params, "sum");
}

TEST(GpuSampling, EndTokensAreBannedBelowMinTokens) {
  std::vector<float> logits(50, 0);
  logits[2] = 30;
  Params params;
  params.min_tokens = 3;
  const std::vector<TokenId> ends = {2};
  Position position;
  position.end_tokens = ends;
  EXPECT_NE(OnGpu(logits, 50, position, params), 2u);
  ExpectSame(logits, position, params, "banned");
}

// Also one that is shorter than the vocabulary, and beside others' masks.
TEST(GpuSampling, WhatAMaskDoesNotAllowIsNeverChosen) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const uint32_t size = std::vector<uint32_t>{1, 31, 33, 64, 700}[random() % 5];
    const auto logits = RandomFloats(size, random(), 5);
    std::vector<uint64_t> mask((size + 63) / 64 - (size > 64 && round % 3 == 0 ? 1 : 0));
    for (uint64_t& word : mask) word = (uint64_t{random()} << 32 | random()) & ~uint64_t{random()};
    mask[0] |= 1;
    Position position;
    position.allowed = mask;
    position.output_index = static_cast<uint32_t>(round);
    ExpectSame(logits, position, RandomParams(random), "round " + std::to_string(round));
  }
  // What stands behind a mask is another row's.
  std::vector<float> logits(400);
  logits[100] = logits[200 + 40] = 9;
  const std::vector<uint64_t> one = {1}, all(4, ~uint64_t{0}), none = {0};
  Position position;
  Batch batch;
  for (const auto* mask : {&one, &all}) {
    position.allowed = *mask;
    batch.Add({}, position, 200);
  }
  EXPECT_EQ(batch.Run(logits, 200), (std::vector<uint32_t>{0, 40}));
  position.allowed = none;
  EXPECT_EQ(OnGpu(std::vector<float>(40, 1), 40, position, {}), kAllBanned);
}

TEST(GpuSampling, BadSequencesAreBannedAtTheirLastToken) {
  const auto logits = RandomFloats(300, 8, 5);
  const auto best =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<TokenId> tokens = {4, 9};
  Position position;
  position.tokens = tokens;
  for (const std::vector<TokenId>& words :
       {std::vector<TokenId>{best}, {9, best}, {4, 9, best}, {8, best}}) {
    Params params;
    params.bad_sequences = {words};
    ExpectSame(logits, position, params, std::to_string(words.size()));
  }
}

TEST(GpuSampling, PaddedIdsAreNeverChosen) {
  std::vector<float> logits(100, 0);
  for (int i = 60; i < 100; ++i) logits[i] = 40;
  Params params;
  EXPECT_EQ(OnGpu(logits, 60, {}, params), 0u);
  params.temperature = 2;
  for (uint32_t i = 0; i < 20; ++i) {
    Position position;
    position.output_index = i;
    EXPECT_LT(OnGpu(logits, 60, position, params), 60u);
  }
}

TEST(GpuSampling, NotFiniteAndAllBannedAreTold) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> logits(700, 0);
    logits[650] = bad;
    EXPECT_EQ(OnGpu(logits, 700, {}, {}), kNotFinite);
    EXPECT_NE(OnGpu(logits, 650, {}, {}), kNotFinite);
    // Also where an edit would hide it.
    Params params;
    params.logit_bias = {{650, 1}};
    EXPECT_EQ(OnGpu(logits, 700, {}, params), kNotFinite);
  }
  const std::vector<float> banned(10, -std::numeric_limits<float>::max());
  EXPECT_EQ(OnGpu(banned, 10, {}, {}), kAllBanned);
}

TEST(GpuSampling, RowsOfABatchDoNotMix) {
  std::mt19937 random(6);
  Batch batch;
  std::vector<float> logits;
  std::vector<uint32_t> expected;
  std::vector<std::vector<TokenId>> tokens(9);
  for (auto& history : tokens) {
    const auto row = RandomFloats(300, random(), 5);
    for (int i = 0; i < 20; ++i) history.push_back(random() % 300);
    Position position;
    position.tokens = history;
    position.output_index = 10;
    Params params = RandomParams(random);
    params.logit_bias = {{static_cast<TokenId>(random() % 300), 2}};
    batch.Add(params, position, 300);
    logits.insert(logits.end(), row.begin(), row.end());
    expected.push_back(SampleToken(row, 300, position, params)->token);
  }
  for (auto schedule : kSchedules) {
    const WithSchedule scope(schedule);
    EXPECT_EQ(batch.Run(logits, 300), expected);
  }
}

}  // namespace
}  // namespace baton::gpu
