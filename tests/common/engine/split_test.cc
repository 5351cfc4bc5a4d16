// SPDX-License-Identifier: Apache-2.0
// A prefill and a decode engine together give what one engine gives alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;

TEST(Split, GreedyTokensEqualTheReferenceAtEveryPromptLength) {
  const FakeOptions fake;
  Options prefill = PoolOf(64);
  prefill.chunk_tokens = 64;
  Pair pair(fake, prefill, PoolOf(64));
  std::mt19937 random(1);
  uint64_t key = 0;
  for (size_t length : {1, 31, 32, 33, 64, 65, 127, 128, 129, 300}) {
    const SequenceSpec spec = MakeSpec(++key, RandomPrompt(random, length, fake), 40);
    pair.Submit(spec);
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    EXPECT_EQ(pair.Tokens(spec.ref), FakeReference(fake, spec.prompt, 40)) << length;
    const Heard first = pair.prefill_heard.Of(spec.ref);
    EXPECT_EQ(first.tokens.size(), 1u);
    EXPECT_TRUE(first.end.status.ok());
    EXPECT_TRUE(first.end.handed_off);
    EXPECT_EQ(first.end.reason, FinishReason::kNone);
    EXPECT_EQ(first.end.transport, "loopback");
    const Heard rest = pair.decode_heard.Of(spec.ref);
    EXPECT_EQ(rest.indices.front(), 1u);
    EXPECT_EQ(rest.end.reason, FinishReason::kLength);
    EXPECT_TRUE(rest.first_step_start);
    EXPECT_FALSE(rest.prefill_end);
  }
  pair.ExpectIdle();
}

// The prompt is computed once, and its blocks move once, no more.
TEST(Split, DecodeWorkerComputesNothingOfThePrompt) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(64));
  std::mt19937 random(2);
  const SequenceSpec spec = MakeSpec(1, RandomPrompt(random, 1000, fake), 10);
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.decode->load().prompt_tokens_computed, 0u);
  EXPECT_EQ(pair.prefill->load().prompt_tokens_computed, 1000u);
  EXPECT_EQ(pair.prefill->load().tokens_sampled, 1u);
  EXPECT_EQ(pair.decode->load().tokens_sampled, 9u);
  EXPECT_EQ(pair.sender.calls().blocks, 32u);
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.handoff_bytes,
            32 * pair.prefill->arena().layout().BlockBytes());
  pair.ExpectIdle();
}

SequenceSpec RandomSpec(std::mt19937& random, uint64_t key, const FakeOptions& fake) {
  SequenceSpec spec = MakeSpec(key, RandomPrompt(random, 1 + random() % 250, fake),
                               1 + static_cast<uint32_t>(random() % 60));
  spec.sampling.temperature = random() % 3 == 0 ? 0.0f : 0.8f;
  spec.sampling.seed = random();
  spec.sampling.top_k = random() % 4 == 0 ? 20 : 0;
  spec.sampling.top_p = random() % 4 == 0 ? 0.9f : 1.0f;
  spec.sampling.repetition_penalty = random() % 4 == 0 ? 1.5f : 1.0f;
  if (random() % 4 == 0) spec.sampling.logprobs = 4;
  if (random() % 6 == 0) spec.sampling.prompt_logprobs = static_cast<uint32_t>(random() % 3);
  if (random() % 4 == 0) spec.sampling.min_p = 0.01f;
  if (random() % 4 == 0) spec.sampling.typical_p = 0.9f;
  if (random() % 4 == 0) spec.sampling.presence_penalty = 0.8f;
  if (random() % 4 == 0) spec.sampling.frequency_penalty = 0.3f;
  if (random() % 4 == 0) spec.sampling.logit_bias = {{7, 3.0f}, {9, -50.0f}};
  if (random() % 4 == 0) spec.sampling.bad_sequences = {{5}, {7, 11}};
  if (random() % 4 == 0) spec.sampling.min_tokens = 1 + static_cast<uint32_t>(random() % 3);
  // Some stop tokens that random text meets now and then.
  for (int i = 0; i < 10; ++i) {
    spec.stop_tokens.push_back(static_cast<TokenId>(random() % fake.vocabulary_size));
  }
  return spec;
}

void ExpectEqualSamples(const std::vector<sampling::Sample>& split,
                        const std::vector<sampling::Sample>& whole) {
  ASSERT_EQ(split.size(), whole.size());
  for (size_t i = 0; i < split.size(); ++i) {
    EXPECT_EQ(split[i].token, whole[i].token);
    ASSERT_EQ(split[i].logprobs.has_value(), whole[i].logprobs.has_value());
    if (!split[i].logprobs) continue;
    EXPECT_EQ(split[i].logprobs->logprob, whole[i].logprobs->logprob);
    EXPECT_EQ(split[i].logprobs->top, whole[i].logprobs->top);
  }
}

// Random requests at random concurrency: split and whole agree to the bit, in
// tokens, log-probabilities and reasons.
TEST(Split, EqualsWholeForRandomRequestsChunksAndConcurrency) {
  const FakeOptions fake;
  std::mt19937 random(3);
  for (uint32_t chunk : {32u, 64u, 160u, 512u}) {
    Options prefill = PoolOf(8 + static_cast<uint32_t>(random() % 40));
    prefill.chunk_tokens = chunk;
    prefill.max_sequences = 1 + static_cast<uint32_t>(random() % 8);
    Options decode = PoolOf(10 + static_cast<uint32_t>(random() % 60));
    decode.max_sequences = 1 + static_cast<uint32_t>(random() % 16);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 30; ++key) specs.push_back(RandomSpec(random, key, fake));
    std::vector<Heard> whole;
    {
      Recorder recorder;
      const auto engine = MakeEngine(fake, PoolOf(64), &recorder);
      for (const SequenceSpec& spec : specs) {
        engine->Submit(spec);
        ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
        whole.push_back(recorder.Of(spec.ref));
      }
    }
    Pair pair(fake, prefill, decode);
    for (const SequenceSpec& spec : specs) pair.Submit(spec);
    for (size_t i = 0; i < specs.size(); ++i) {
      ASSERT_TRUE(pair.WaitForEnd(specs[i].ref));
      const Heard first = pair.prefill_heard.Of(specs[i].ref);
      const Heard rest = pair.decode_heard.Of(specs[i].ref);
      std::vector<sampling::Sample> samples = first.samples;
      samples.insert(samples.end(), rest.samples.begin(), rest.samples.end());
      ExpectEqualSamples(samples, whole[i].samples);
      ASSERT_EQ(first.prompt_logprobs.size(), whole[i].prompt_logprobs.size());
      for (size_t at = 0; at < first.prompt_logprobs.size(); ++at) {
        EXPECT_EQ(first.prompt_logprobs[at].logprob, whole[i].prompt_logprobs[at].logprob);
        EXPECT_EQ(first.prompt_logprobs[at].top, whole[i].prompt_logprobs[at].top);
      }
      const EndOutput& last = first.end.handed_off ? rest.end : first.end;
      EXPECT_TRUE(last.status.ok()) << last.status;
      EXPECT_EQ(last.reason, whole[i].end.reason);
    }
    pair.ExpectIdle();
  }
}

TEST(Split, FirstTokenThatEndsTheSequenceIsNotHandedOver) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(64));
  const std::vector<TokenId> prompt(100, 4);
  const TokenId first = FakeReference(fake, prompt, 1)[0];
  struct Case {
    uint32_t max_tokens;
    std::vector<TokenId> stops;
    FinishReason reason;
  };
  uint64_t key = 0;
  for (const Case& c : {Case{1, {}, FinishReason::kLength}, Case{9, {first}, FinishReason::kStop},
                        Case{1, {first}, FinishReason::kStop}}) {
    SequenceSpec spec = MakeSpec(++key, prompt, c.max_tokens);
    spec.stop_tokens = c.stops;
    spec.sampling.logprobs = 10;
    pair.Submit(spec);
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    const Heard heard = pair.prefill_heard.Of(spec.ref);
    EXPECT_EQ(heard.tokens, std::vector<TokenId>{first});
    EXPECT_TRUE(heard.samples[0].logprobs);
    EXPECT_TRUE(heard.end.status.ok());
    EXPECT_EQ(heard.end.reason, c.reason);
    EXPECT_FALSE(heard.end.handed_off);
    EXPECT_TRUE(pair.decode_heard.Of(spec.ref).tokens.empty());
  }
  EXPECT_EQ(pair.sender.calls().commits, 0u);
  EXPECT_EQ(pair.sender.calls().aborts, 3u);
  pair.ExpectIdle();
}

TEST(Split, FirstTokenDoesNotWaitForTheHandoff) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(64));
  pair.sender.SetFrozen(true);
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(100, 4), 5);
  pair.Submit(spec);
  ASSERT_TRUE(pair.prefill_heard.WaitForTokens(spec.ref, 1));
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).ends, 0u);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().commits == 1; }));
  pair.sender.SetFrozen(false);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.Tokens(spec.ref), FakeReference(fake, spec.prompt, 5));
  pair.ExpectIdle();
}

// Whole blocks leave while the next chunk is computed; the last, partly filled
// one after the last chunk.
TEST(Split, BlocksLeaveAfterTheChunkThatCompletesThem) {
  const FakeOptions fake{.delay_per_step = absl::Milliseconds(20)};
  Options prefill = PoolOf(64);
  prefill.chunk_tokens = 64;
  Pair pair(fake, prefill, PoolOf(64));
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(130, 4), 5);  // 64 + 64 + 2 tokens
  pair.Submit(spec);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().blocks > 0; }));
  EXPECT_EQ(pair.sender.calls().blocks, 2u);
  EXPECT_TRUE(pair.prefill_heard.Of(spec.ref).tokens.empty());
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.sender.calls().blocks, 5u);
  EXPECT_EQ(pair.Tokens(spec.ref), FakeReference(fake, spec.prompt, 5));
  pair.ExpectIdle();
}

TEST(Split, NanInTheFirstTokenIsNotHandedOver) {
  FakeOptions fake;
  fake.nan_token = 999;
  Pair pair(fake, PoolOf(64), PoolOf(64));
  std::vector<TokenId> prompt(40, 4);
  prompt.back() = 999;
  const SequenceSpec spec = MakeSpec(1, prompt, 5);
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(pair.sender.calls().blocks, 0u);
  EXPECT_EQ(pair.sender.calls().commits, 0u);
  pair.ExpectIdle();
}

}  // namespace
}  // namespace baton::engine
