// SPDX-License-Identifier: Apache-2.0
// Several answers to one prompt: computed once, handed over once, each as if it
// were alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"
#include "tests/common/engine/reference_answers.h"

namespace baton::engine {
namespace {

using model::FakeOptions;

SequenceSpec Sampled(uint64_t key, std::vector<TokenId> prompt, uint32_t max_tokens,
                     uint32_t choices) {
  SequenceSpec spec = MakeSpec(key, std::move(prompt), max_tokens);
  spec.sampling.temperature = 0.9f;
  spec.sampling.seed = 100 + key;
  spec.choices = choices;
  return spec;
}

TEST(Choices, EachEqualsTheReferenceOnOneWorkerAndOnTwo) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(128), PoolOf(128));
  Recorder alone_heard;
  const auto alone = MakeEngine(fake, PoolOf(128), &alone_heard);
  std::mt19937 random(1);
  uint64_t key = 0;
  for (const size_t length : {1, 31, 32, 33, 64, 100}) {
    for (const uint32_t choices : {2u, 8u}) {
      SequenceSpec spec = Sampled(++key, RandomPrompt(random, length, fake), 40, choices);
      spec.sampling.repetition_penalty = 1.2f;
      spec.stop_tokens = {7, 11, 200, 321, 500, 600, 700, 800, 900};
      pair.Submit(spec);
      alone->Submit(spec);
      ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      ASSERT_TRUE(alone_heard.WaitForEnd(spec.ref));
      const auto expected = ReferenceAnswers(fake, spec);
      ExpectEqual(AnswersOf(alone_heard.Of(spec.ref)), expected);
      ExpectEqual(AnswersOf(pair, spec.ref), expected);
      // The first of several is what one alone would be.
      spec.choices = 1;
      EXPECT_EQ(ReferenceAnswers(fake, spec)[0].tokens, expected[0].tokens);
    }
  }
  pair.ExpectIdle();
  ExpectIdle(*alone);
}

TEST(Choices, PromptIsComputedOnceAndMovesOnce) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(128));
  std::mt19937 random(2);
  const SequenceSpec spec = Sampled(1, RandomPrompt(random, 1000, fake), 10, 8);
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.decode->load().prompt_tokens_computed, 0u);
  EXPECT_EQ(pair.prefill->load().prompt_tokens_computed, 1000u);
  EXPECT_EQ(pair.prefill->load().tokens_sampled, 8u);
  EXPECT_EQ(pair.decode->load().tokens_sampled, 72u);
  EXPECT_EQ(pair.sender.calls().blocks, 32u);
  EXPECT_EQ(pair.sender.calls().commits, 1u);
  pair.ExpectIdle();
}

TEST(Choices, EightBeginWithLittleMoreKvThanOne) {
  const FakeOptions fake;
  std::mt19937 random(3);
  const std::vector<TokenId> prompt = RandomPrompt(random, 2000, fake);
  std::vector<uint32_t> held;
  for (const uint32_t choices : {1u, 8u}) {
    Gate gate;
    Recorder heard;
    const auto engine = MakeEngine(fake, PoolOf(128), &heard, nullptr, &gate);
    const SequenceSpec spec = Sampled(1, prompt, 10, choices);
    engine->Submit(spec);
    ASSERT_TRUE(heard.WaitForTokens(spec.ref, 3));
    gate.Close();
    ASSERT_TRUE(gate.WaitForStep());
    held.push_back(engine->load().kv_blocks_requests);
    gate.Open();
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
  }
  EXPECT_LT(held[1], 1.3 * held[0]);
  EXPECT_GE(held[1], held[0] + 7);
}

TEST(Choices, OneThatIsCancelledGivesItsBlocksBackAtOnceAndTheOthersGoOn) {
  FakeOptions fake;
  fake.delay_per_step = absl::Milliseconds(2);
  Gate gate;
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard, nullptr, &gate);
  std::mt19937 random(4);
  const SequenceSpec spec = Sampled(1, RandomPrompt(random, 46, fake), 200, 4);
  const auto expected = ReferenceAnswers(fake, spec);
  engine->Submit(spec);
  // Behind the border of a block: the others need none for a while.
  ASSERT_TRUE(heard.WaitForTokens(spec.ref, 20));
  gate.Close();
  ASSERT_TRUE(gate.WaitForStep());
  const uint32_t before = engine->load().kv_blocks_requests;
  engine->CancelChoice(spec.ref, 2, absl::CancelledError("enough"));
  gate.Open();
  ASSERT_TRUE(Eventually([&] {
    const Load load = engine->load();
    return load.running_sequences == 3 && load.kv_blocks_requests < before;
  }));
  ASSERT_TRUE(heard.WaitForEnd(spec.ref));
  auto got = AnswersOf(heard.Of(spec.ref));
  EXPECT_LT(got[2].tokens.size(), 200u);
  EXPECT_TRUE(std::equal(got[2].tokens.begin(), got[2].tokens.end(), expected[2].tokens.begin()));
  got[2] = expected[2];
  ExpectEqual(got, expected);
  EXPECT_TRUE(heard.Of(spec.ref).end.status.ok());
  ExpectIdle(*engine);
}

TEST(Choices, CancellingTheLastOneEndsTheSequence) {
  const FakeOptions fake;
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(256), &heard);
  std::mt19937 random(5);
  const SequenceSpec spec = Sampled(1, RandomPrompt(random, 40, fake), 3000, 2);
  engine->Submit(spec);
  ASSERT_TRUE(heard.WaitForTokens(spec.ref, 5));
  engine->CancelChoice(spec.ref, 1, absl::CancelledError("one"));
  engine->CancelChoice(spec.ref, 0, absl::CancelledError("two"));
  ASSERT_TRUE(heard.WaitForEnd(spec.ref));
  EXPECT_EQ(heard.Of(spec.ref).end.status.code(), absl::StatusCode::kCancelled);
  ExpectIdle(*engine);
}

// Which of them end with token 0 is known on the prefill worker alone.
TEST(Choices, ThoseThatEndWithTheirFirstTokenAreNotTakenOver) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(64));
  std::mt19937 random(6);
  SequenceSpec spec = Sampled(1, RandomPrompt(random, 70, fake), 20, 4);
  const auto open = ReferenceAnswers(fake, spec);
  spec.stop_tokens = {open[0].tokens[0], open[2].tokens[0]};
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  ExpectEqual(AnswersOf(pair, spec.ref), ReferenceAnswers(fake, spec));
  EXPECT_EQ(pair.decode_heard.Of(spec.ref).choices.count(0), 0u);
  EXPECT_EQ(pair.sender.calls().commits, 1u);

  // All of them: nothing is handed over.
  spec.ref.key = 2;
  for (const ReferenceAnswer& answer : open) spec.stop_tokens.push_back(answer.tokens[0]);
  pair.Submit(spec);
  ASSERT_TRUE(pair.prefill_heard.WaitForEnd(spec.ref));
  EXPECT_FALSE(pair.prefill_heard.Of(spec.ref).end.handed_off);
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.reason, FinishReason::kStop);
  pair.Cancel(spec.ref);
  pair.ExpectIdle();
}

TEST(Choices, PutAsideTogetherTheyGoOnWithTheSameTokens) {
  for (const uint64_t swap_bytes : {uint64_t{0}, uint64_t{64} << 20}) {
    const FakeOptions fake;
    Options options = PoolOf(40);
    options.swap_bytes = swap_bytes;
    Pair pair(fake, PoolOf(64), options);
    std::mt19937 random(7);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 6; ++key) {
      specs.push_back(Sampled(key, RandomPrompt(random, 50 + 9 * key, fake), 150, 4));
      // Every other one on the decode worker alone.
      if (key % 2 == 0) {
        pair.decode->Submit(specs.back());
      } else {
        pair.Submit(specs.back());
      }
    }
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
      ExpectEqual(AnswersOf(pair, spec.ref), ReferenceAnswers(fake, spec));
    }
    const Load load = pair.decode->load();
    EXPECT_GT(load.preemptions, 0u);
    EXPECT_EQ(load.swaps > 0, swap_bytes > 0);
    EXPECT_EQ(load.recomputed_tokens > 0, swap_bytes == 0);
    pair.ExpectIdle();
  }
}

TEST(Choices, AWindowIsSeenByEach) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(64));
  std::mt19937 random(8);
  SequenceSpec spec = Sampled(1, RandomPrompt(random, 150, fake), 200, 4);
  spec.window = {.tokens = 64, .sinks = 32};
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  ExpectEqual(AnswersOf(pair, spec.ref), ReferenceAnswers(fake, spec));
  pair.ExpectIdle();
}

TEST(Choices, NanUnderOneEndsTheRequestAndNoOther) {
  FakeOptions fake;
  Recorder heard;
  std::mt19937 random(9);
  const SequenceSpec bad = Sampled(1, RandomPrompt(random, 40, fake), 100, 4);
  const SequenceSpec good = Sampled(2, RandomPrompt(random, 40, fake), 100, 4);
  const auto expected = ReferenceAnswers(fake, good);
  // A token that the third choice of the one meets, and none of the other.
  std::set<TokenId> met;
  for (const ReferenceAnswer& answer : expected) {
    met.insert(answer.tokens.begin(), answer.tokens.end());
  }
  const std::vector<TokenId> third = ReferenceAnswers(fake, bad)[2].tokens;
  fake.nan_token = *std::find_if(third.begin() + 5, third.end(),
                                 [&](TokenId token) { return !met.contains(token); });
  const auto engine = MakeEngine(fake, PoolOf(128), &heard);
  engine->Submit(bad);
  engine->Submit(good);
  ASSERT_TRUE(heard.WaitForEnd(bad.ref));
  EXPECT_EQ(heard.Of(bad.ref).end.status.code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(heard.WaitForEnd(good.ref));
  ExpectEqual(AnswersOf(heard.Of(good.ref)), expected);
  ExpectIdle(*engine);
}

TEST(Choices, TakeAsManySeatsAsThereAreOfThem) {
  const FakeOptions fake;
  Options options = PoolOf(256);
  options.max_sequences = 10;
  Recorder heard;
  Gate gate;
  const auto engine = MakeEngine(fake, options, &heard, nullptr, &gate);
  std::mt19937 random(10);
  const SequenceSpec first = Sampled(1, RandomPrompt(random, 20, fake), 300, 6);
  const SequenceSpec second = Sampled(2, RandomPrompt(random, 20, fake), 20, 6);
  engine->Submit(first);
  ASSERT_TRUE(heard.WaitForTokens(first.ref, 2));
  gate.Close();
  engine->Submit(second);
  ASSERT_TRUE(gate.WaitForStep());
  gate.Open();
  ASSERT_TRUE(heard.WaitForTokens(first.ref, 20));
  EXPECT_LE(engine->load().running_sequences, 10u);
  ASSERT_TRUE(heard.WaitForEnd(second.ref));
  ExpectEqual(AnswersOf(heard.Of(second.ref)), ReferenceAnswers(fake, second));

  engine->Submit(Sampled(3, RandomPrompt(random, 20, fake), 20, 11));
  ASSERT_TRUE(heard.WaitForEnd({1, 3}));
  EXPECT_EQ(heard.Of({1, 3}).end.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(heard.Of({1, 3}).end.status.message()),
              ::testing::AllOf(::testing::HasSubstr("11"), ::testing::HasSubstr("10")));
  ASSERT_TRUE(heard.WaitForEnd(first.ref));
  ExpectIdle(*engine);
}

TEST(Choices, ThosePoolCanNeverHoldAreRefusedWithTheNumbers) {
  const FakeOptions fake;
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(18), &heard);
  std::mt19937 random(11);
  // 64 shared tokens are 2 blocks; 4 times 6 + 161 tokens are 4 times 6.
  engine->Submit(Sampled(1, RandomPrompt(random, 70, fake), 162, 4));
  ASSERT_TRUE(heard.WaitForEnd({1, 1}));
  EXPECT_EQ(heard.Of({1, 1}).end.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(heard.Of({1, 1}).end.status.message()),
              ::testing::HasSubstr("26 blocks"));
  // One less each, and the pool is just enough: nobody waits for ever.
  const SequenceSpec fits = Sampled(2, RandomPrompt(random, 70, fake), 122, 4);
  engine->Submit(fits);
  ASSERT_TRUE(heard.WaitForEnd(fits.ref));
  ExpectEqual(AnswersOf(heard.Of(fits.ref)), ReferenceAnswers(fake, fits));
  ExpectIdle(*engine);
}

TEST(Choices, CancelAndDeadlineEndAllOfThem) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(64), PoolOf(512));
  std::mt19937 random(12);
  const SequenceSpec spec = Sampled(1, RandomPrompt(random, 100, fake), 2000, 6);
  pair.Submit(spec);
  ASSERT_TRUE(pair.decode_heard.WaitForTokens(spec.ref, 3));
  pair.Cancel(spec.ref);
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.decode_heard.Of(spec.ref).end.status.code(), absl::StatusCode::kCancelled);

  SequenceSpec late = Sampled(2, RandomPrompt(random, 100, fake), 2000, 6);
  late.deadline = absl::Now() + absl::Milliseconds(200);
  pair.Submit(late);
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(late.ref));
  EXPECT_EQ(pair.decode_heard.Of(late.ref).end.status.code(), absl::StatusCode::kDeadlineExceeded);
  pair.ExpectIdle();
}

}  // namespace
}  // namespace baton::engine
