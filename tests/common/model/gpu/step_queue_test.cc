// SPDX-License-Identifier: Apache-2.0
// Tokens that the emulated GPU (or a real one: $BATON_TEST_DEVICE) chooses, and steps that
// follow them before anybody has read them.
#include "common/model/step_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/checkpoint/checkpoint.h"
#include "common/model/gpu/gpu_model.h"
#include "common/sampling/sampler.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

using ::testing::HasSubstr;

std::string Text(const absl::StatusOr<TokenId>& token) {
  return token.ok() ? std::to_string(*token) : token.status().ToString();
}

// A sequence and how its tokens are chosen.
struct Chosen {
  std::vector<TokenId> tokens;
  TestSequence kv;
  size_t prompt = 0;
  sampling::Params params;
  std::vector<TokenId> end_tokens = {2};
  std::vector<uint64_t> mask;

  // Of the token behind those it has, and `more` that it has not.
  TokenChoice Choice(uint32_t more = 0) const {
    TokenChoice choice;
    choice.params = &params;
    choice.position.tokens = tokens;
    choice.position.output_index = static_cast<uint32_t>(tokens.size() - prompt) + more;
    choice.position.end_tokens = end_tokens;
    choice.position.allowed = mask;
    return choice;
  }
  // The last token.
  Slice Last() const { return {std::span(tokens).last(1), kv.length, kv.blocks, LogitRows::kLast}; }
};

class StepQueueTest : public ::testing::Test {
 protected:
  StepQueueTest() {
    auto checkpoint = checkpoint::OpenCheckpoint("embedded");
    const auto device = ParseDevice(baton::testing::TestDevice());
    runner_ = std::make_unique<ModelRunner>(
        LoadGpuModel(**checkpoint, Options("auto", Precision::kFast, 1), *device), 96);
  }

  StepQueue& queue() { return *runner_->model().queue(); }
  uint32_t vocabulary() { return runner_->vocabulary(); }
  const kv::KvArena& arena() { return runner_->arena(); }

  // With a prompt of so many tokens, all but the last of which are computed.
  Chosen Begin(uint32_t prompt, unsigned seed) {
    Chosen chosen;
    chosen.tokens = RandomTokens(prompt, vocabulary(), seed);
    chosen.prompt = prompt;
    chosen.kv = runner_->NewSequence(prompt + 64);
    if (prompt > 1) {
      runner_->Feed(chosen.kv, std::span(chosen.tokens).first(prompt - 1), 1024, LogitRows::kNone);
    }
    return chosen;
  }

  // What the CPU chooses from the same logits.
  absl::StatusOr<TokenId> OnCpu(const Chosen& chosen) {
    const Slice slice = chosen.Last();
    std::vector<float> logits(vocabulary());
    EXPECT_TRUE(runner_->model().Forward({&slice, 1}, arena(), logits, nullptr).ok());
    const TokenChoice choice = chosen.Choice();
    auto sample = sampling::SampleToken(logits, runner_->model().info().usable_vocabulary,
                                        choice.position, chosen.params);
    if (!sample.ok()) return sample.status();
    return sample->token;
  }

  // Sequences of all kinds.
  std::vector<Chosen> Mixed() {
    std::vector<Chosen> all;
    for (uint32_t i = 0; i < 7; ++i) {
      all.push_back(Begin(20 + 9 * i, 40 + i));
      all[i].params.seed = i;
      all[i].params.temperature = i % 3 == 0 ? 0 : 0.9f;
    }
    all[1].params.top_k = 12;
    all[2].params.repetition_penalty = 1.4f;
    all[2].params.frequency_penalty = 0.3f;
    all[3].params.logit_bias = {{5, 3.0f}, {9, -50.0f}, {5, 2.0f}};
    all[4].params.bad_sequences = {{*OnCpu(all[4])}, {all[4].tokens.back(), 7}};
    all[4].params.top_p = 0.8f;
    all[5].mask = {0xff00, 0x3, 0, 0xf0f0f0f0f0f0};
    all[5].params.min_p = 0.1f;
    all[6].mask = {0};
    all[6].params.repetition_penalty = 1.1f;
    return all;
  }

  std::unique_ptr<ModelRunner> runner_;
};

// All rows, and then every other one beside rows whose logits are wanted; behind a graph
// and within, in steps of several sizes.
TEST_F(StepQueueTest, TokensAreThoseThatTheCpuChoosesFromTheLogits) {
  const std::vector<Chosen> all = Mixed();
  std::vector<absl::StatusOr<TokenId>> expected;
  std::vector<std::vector<float>> rows;
  for (const Chosen& chosen : all) {
    expected.push_back(OnCpu(chosen));
    const Slice slice = chosen.Last();
    rows.emplace_back(vocabulary());
    ASSERT_TRUE(runner_->model().Forward({&slice, 1}, arena(), rows.back(), nullptr).ok());
  }
  ASSERT_EQ(expected[6].status().code(), absl::StatusCode::kFailedPrecondition);
  for (const uint32_t every : {1u, 2u, 3u}) {
    for (const size_t count : {7u, 4u, 1u}) {
      SCOPED_TRACE(::testing::Message() << "every " << every << " of " << count);
      std::vector<TokenChoice> choices;
      for (const Chosen& chosen : all) choices.push_back(chosen.Choice());
      std::vector<Slice> slices;
      for (size_t i = all.size() - count; i < all.size(); ++i) {
        slices.push_back(all[i].Last());
        if (i % every == 0) slices.back().choice = &choices[i];
      }
      ASSERT_TRUE(queue().Start(slices, arena()).ok());
      const auto results = queue().Collect();
      ASSERT_TRUE(results.ok()) << results.status();
      size_t token = 0, row = 0;
      for (size_t i = all.size() - count; i < all.size(); ++i) {
        if (i % every == 0) {
          EXPECT_EQ(Text(results->tokens[token++]), Text(expected[i])) << i;
        } else {
          const auto got = results->logits.subspan(row++ * vocabulary(), vocabulary());
          EXPECT_TRUE(std::equal(got.begin(), got.end(), rows[i].begin())) << i;
        }
      }
      EXPECT_EQ(results->tokens.size(), token);
      EXPECT_EQ(results->logits.size(), row * vocabulary());
    }
  }
}

TEST_F(StepQueueTest, TokenBehindAPromptsChunkIsChosenBesideDecoding) {
  Chosen decoding = Begin(30, 1);
  decoding.params = {.temperature = 1, .seed = 4};
  const auto expected = OnCpu(decoding);
  Chosen prompt = Begin(50, 2), chunk = prompt;
  chunk.kv = runner_->NewSequence(60);
  const auto first = OnCpu(prompt);
  const TokenChoice choices[] = {decoding.Choice(), chunk.Choice()};
  std::vector<Slice> slices = {{chunk.tokens, 0, chunk.kv.blocks, LogitRows::kLast},
                               decoding.Last()};
  slices[0].choice = &choices[1];
  slices[1].choice = &choices[0];
  ASSERT_TRUE(queue().Start(slices, arena()).ok());
  const auto results = queue().Collect();
  ASSERT_TRUE(results.ok());
  ASSERT_EQ(results->tokens.size(), 2u);
  EXPECT_EQ(*results->tokens[0], *first);
  EXPECT_EQ(*results->tokens[1], *expected);
}

// One step after the other on the CPU, against steps that follow one another on the
// device. Sequences change their rows, and two come and go.
TEST_F(StepQueueTest, StepsFollowTokensThatNobodyHasRead) {
  constexpr uint32_t kSteps = 12;
  std::vector<Chosen> all;
  for (uint32_t i = 0; i < 4; ++i) {
    all.push_back(Begin(25 + 3 * i, 60 + i));  // they cross into another block
    all[i].params = {.temperature = i == 0 ? 0 : 0.8f, .seed = i, .min_tokens = 20};
  }
  std::vector<std::vector<TokenId>> expected(4);
  std::vector<Chosen> alone = all;
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (uint32_t i = 0; i < 4; ++i) {
      expected[i].push_back(*OnCpu(alone[i]));
      alone[i].tokens.push_back(expected[i].back());
      ++alone[i].kv.length;
    }
  }
  const auto takes_part = [](uint32_t i, uint32_t step) {
    return i < 2 || (i == 2 ? step < 5 : step >= 4);
  };
  std::vector<std::vector<TokenId>> got(4);
  std::vector<std::vector<uint32_t>> order(kSteps + 1);  // of sequences in each step
  const auto read = [&](uint32_t step) {
    const auto results = queue().Collect();
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->tokens.size(), order[step].size());
    EXPECT_TRUE(results->logits.empty());
    for (size_t row = 0; row < order[step].size(); ++row) {
      got[order[step][row]].push_back(*results->tokens[row]);
    }
  };
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t sequence = step % 2 == 0 ? i : 3 - i;
      if (takes_part(sequence, step)) order[step].push_back(sequence);
    }
    std::vector<TokenChoice> choices;
    for (const uint32_t i : order[step]) {
      const uint32_t outputs = i == 3 ? step - 4 : step;
      choices.push_back(all[i].Choice(outputs));
    }
    std::vector<Slice> slices;
    static constexpr TokenId kNone[] = {0};
    for (size_t row = 0; row < order[step].size(); ++row) {
      const uint32_t i = order[step][row];
      slices.push_back(all[i].Last());
      slices.back().choice = &choices[row];
      slices.back().first_position = all[i].kv.length + choices[row].position.output_index;
      if (choices[row].position.output_index == 0) continue;
      const auto& before = order[step - 1];
      slices.back().tokens = kNone;
      slices.back().follows =
          static_cast<uint32_t>(std::find(before.begin(), before.end(), i) - before.begin());
    }
    ASSERT_TRUE(queue().Start(slices, arena()).ok());
    if (step > 0) read(step - 1);
  }
  read(kSteps - 1);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got[i].size(), i < 2 ? kSteps : i == 2 ? 5 : kSteps - 4);
    EXPECT_TRUE(std::equal(got[i].begin(), got[i].end(), expected[i].begin())) << i;
  }
  // Of one and the same size, and with every token chosen inside.
  EXPECT_LE(dynamic_cast<const GpuModel&>(runner_->model()).graphs(), 2u);
}

// Its row is computed on what is no token, beside one that is right.
TEST_F(StepQueueTest, AnErrorIsFollowedByNothingThatHarmsOthers) {
  Chosen none = Begin(20, 1), other = Begin(20, 2);
  none.mask = {0};
  other.params = {.temperature = 1, .seed = 3};
  Chosen alone = other;
  const TokenId first = *OnCpu(alone);
  alone.tokens.push_back(first);
  ++alone.kv.length;
  const TokenId second = *OnCpu(alone);
  TokenChoice choices[] = {none.Choice(), other.Choice()};
  std::vector<Slice> slices = {none.Last(), other.Last()};
  for (size_t i = 0; i < 2; ++i) slices[i].choice = &choices[i];
  ASSERT_TRUE(queue().Start(slices, arena()).ok());
  for (uint32_t i = 0; i < 2; ++i) {
    ++slices[i].first_position;
    ++choices[i].position.output_index;
    slices[i].follows = i;
  }
  ASSERT_TRUE(queue().Start(slices, arena()).ok());
  auto results = queue().Collect();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->tokens[0].status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*results->tokens[1], first);
  results = queue().Collect();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(*results->tokens[1], second);
}

TEST_F(StepQueueTest, WhatDoesNotFitIsRefused) {
  const Chosen chosen = Begin(20, 1);
  const TokenChoice choice = chosen.Choice();
  Slice slice = chosen.Last();
  EXPECT_EQ(queue().Collect().status().code(), absl::StatusCode::kFailedPrecondition);
  slice.follows = 0;
  EXPECT_THAT(queue().Start({&slice, 1}, arena()).message(), HasSubstr("follows choice 0"));
  slice.follows.reset();
  slice.choice = &choice;
  slice.logit_rows = LogitRows::kAll;
  EXPECT_THAT(queue().Start({&slice, 1}, arena()).message(), HasSubstr("with a choice"));
  slice.logit_rows = LogitRows::kLast;
  ASSERT_TRUE(queue().Start({&slice, 1}, arena()).ok());
  std::vector<float> logits(vocabulary());
  EXPECT_EQ(runner_->model().Forward({&slice, 1}, arena(), logits, nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
  slice.follows = 1;
  EXPECT_THAT(queue().Start({&slice, 1}, arena()).message(), HasSubstr("the step before has 1"));
  slice.follows = 0;
  ++slice.first_position;
  ASSERT_TRUE(queue().Start({&slice, 1}, arena()).ok());
  EXPECT_THAT(queue().Start({&slice, 1}, arena()).message(), HasSubstr("2 steps are started"));
  EXPECT_TRUE(queue().Collect().ok());
  EXPECT_TRUE(queue().Collect().ok());
  EXPECT_FALSE(queue().Chooses({.typical_p = 0.9f}));
  EXPECT_FALSE(queue().Chooses({.logprobs = 0}));
}

}  // namespace
}  // namespace baton::model::gpu
