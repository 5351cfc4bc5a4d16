// SPDX-License-Identifier: Apache-2.0
// One engine by itself: the right tokens, whatever shares a step with them.
#include "common/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/kv/arena.h"
#include "common/sampling/sampler.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Submits, waits, and returns what was heard.
Heard RunAlone(Engine& engine, Recorder& recorder, const SequenceSpec& spec) {
  engine.Submit(spec);
  EXPECT_TRUE(recorder.WaitForEnd(spec.ref));
  return recorder.Of(spec.ref);
}

// Prompts around the borders of blocks and chunks, each of them three times.
TEST(Engine, GreedyTokensEqualTheReferenceAtEveryPromptLength) {
  const FakeOptions fake;
  Recorder recorder;
  Options options = PoolOf(64);
  options.chunk_tokens = 64;
  const auto engine = MakeEngine(fake, options, &recorder);
  std::mt19937 random(1);
  uint64_t key = 0;
  for (size_t length : {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200, 300}) {
    const auto prompt = RandomPrompt(random, length, fake);
    const auto expected = FakeReference(fake, prompt, 40);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Heard heard = RunAlone(*engine, recorder, MakeSpec(++key, prompt, 40));
      EXPECT_EQ(heard.tokens, expected) << length;
      EXPECT_EQ(heard.end.reason, FinishReason::kLength);
      ASSERT_TRUE(heard.start && heard.prefill_end);
      EXPECT_LE(*heard.start, *heard.prefill_end);
      EXPECT_FALSE(heard.first_step_start) << "for hand-offs only";
    }
  }
  ExpectIdle(*engine);
}

TEST(Engine, IndicesCountFromZeroAndEndComesOnce) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(8), &recorder);
  const Heard heard = RunAlone(*engine, recorder, MakeSpec(1, {5, 6, 7}, 4));
  EXPECT_THAT(heard.indices, ElementsAreArray({0, 1, 2, 3}));
  EXPECT_TRUE(heard.end.status.ok());
  EXPECT_FALSE(heard.end.handed_off);
  absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(recorder.Of({1, 1}).ends, 1u);
  ExpectIdle(*engine);
}

// Greedy, seeded, penalized and log-probability requests, alone and all at
// once, in any order and with any chunk size.
TEST(Engine, NeighboursAndChunksDoNotChangeTokens) {
  const FakeOptions fake;
  std::mt19937 random(2);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 24; ++key) {
    SequenceSpec spec = MakeSpec(key, RandomPrompt(random, 1 + random() % 200, fake),
                                 1 + static_cast<uint32_t>(random() % 40));
    spec.sampling.temperature = key % 3 == 0 ? 0.0f : 0.8f;
    spec.sampling.seed = key % 2 == 0 ? 42 : key;
    spec.sampling.top_k = key % 4 == 0 ? 5 : 0;
    spec.sampling.top_p = key % 5 == 0 ? 0.7f : 1.0f;
    spec.sampling.repetition_penalty = key % 6 == 0 ? 2.0f : 1.0f;
    if (key % 7 == 0) spec.sampling.logprobs = 3;
    specs.push_back(spec);
  }
  std::map<uint64_t, std::vector<TokenId>> alone;
  {
    Recorder recorder;
    const auto engine = MakeEngine(fake, PoolOf(64), &recorder);
    for (const SequenceSpec& spec : specs) {
      alone[spec.ref.key] = RunAlone(*engine, recorder, spec).tokens;
      EXPECT_EQ(alone[spec.ref.key].size(), spec.max_tokens);
    }
  }
  for (uint32_t chunk : {32u, 96u, 512u}) {
    Recorder recorder;
    Options options = PoolOf(100);
    options.chunk_tokens = chunk;
    options.max_sequences = 9;
    const auto engine = MakeEngine(fake, options, &recorder);
    std::shuffle(specs.begin(), specs.end(), random);
    for (const SequenceSpec& spec : specs) engine->Submit(spec);
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
      EXPECT_EQ(recorder.Of(spec.ref).tokens, alone[spec.ref.key]) << "chunk " << chunk;
    }
    ExpectIdle(*engine);
  }
}

TEST(Engine, SeedsAndPositionsDrawDifferently) {
  const FakeOptions fake;
  Recorder recorder;
  const auto engine = MakeEngine(fake, PoolOf(8), &recorder);
  std::vector<std::vector<TokenId>> outputs;
  for (uint64_t seed : {1, 2, 1}) {
    SequenceSpec spec = MakeSpec(10 + outputs.size(), {1, 2, 3}, 30);
    spec.sampling = {.temperature = 1, .seed = seed};
    outputs.push_back(RunAlone(*engine, recorder, spec).tokens);
  }
  EXPECT_EQ(outputs[0], outputs[2]);
  EXPECT_NE(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0], FakeReference(fake, std::vector<TokenId>{1, 2, 3}, 30));
  ExpectIdle(*engine);
}

TEST(Engine, StopTokenIsEmittedAndWinsOverTheLimit) {
  const FakeOptions fake;
  Recorder recorder;
  const auto engine = MakeEngine(fake, PoolOf(8), &recorder);
  const std::vector<TokenId> prompt = {9, 8, 7};
  const auto expected = FakeReference(fake, prompt, 5);  // all different
  uint64_t key = 0;
  const auto run = [&](uint32_t max_tokens, std::vector<TokenId> stops) {
    SequenceSpec spec = MakeSpec(++key, prompt, max_tokens);
    spec.stop_tokens = std::move(stops);
    return RunAlone(*engine, recorder, spec);
  };
  for (uint32_t at = 0; at < 5; ++at) {
    for (uint32_t max_tokens : {at + 1, at + 2, 50u}) {
      const Heard heard = run(max_tokens, {expected[at]});
      EXPECT_THAT(heard.tokens, ElementsAreArray(expected.begin(), expected.begin() + at + 1));
      EXPECT_EQ(heard.end.reason, FinishReason::kStop);
    }
  }
  for (uint32_t max_tokens : {1, 2, 5}) {
    const Heard heard = run(max_tokens, {});
    EXPECT_EQ(heard.tokens.size(), max_tokens);
    EXPECT_EQ(heard.end.reason, FinishReason::kLength);
  }
  EXPECT_EQ(engine->load().tokens_sampled, 3 * (1 + 2 + 3 + 4 + 5) + 1 + 2 + 5);
  ExpectIdle(*engine);
}

TEST(Engine, EveryTokenCarriesLogprobsWhenAsked) {
  Recorder recorder;
  Options options = PoolOf(16);
  options.chunk_tokens = 32;
  const auto engine = MakeEngine({}, options, &recorder);
  std::mt19937 random(3);
  SequenceSpec spec = MakeSpec(1, RandomPrompt(random, 90, {}), 4);
  spec.sampling.logprobs = 5;
  const Heard heard = RunAlone(*engine, recorder, spec);
  ASSERT_EQ(heard.samples.size(), 4u);
  for (const sampling::Sample& sample : heard.samples) {
    ASSERT_TRUE(sample.logprobs);
    ASSERT_EQ(sample.logprobs->top.size(), 5u);
    EXPECT_EQ(sample.logprobs->top[0].first, sample.token);
    EXPECT_EQ(sample.logprobs->top[0].second, sample.logprobs->logprob);
  }
  ExpectIdle(*engine);
}

// In chunks or at once, beside others or alone, here or on a prefill worker:
// what a model says when it is given the whole prompt.
TEST(Engine, PromptLogprobsAreThoseOfTheModelWhateverTheChunks) {
  const FakeOptions fake;
  std::mt19937 random(4);
  const std::vector<TokenId> prompt = RandomPrompt(random, 150, fake);
  const auto model = *model::MakeFakeModel(fake);
  const auto width = fake.vocabulary_size;
  const auto arena = *kv::KvArena::Create(model->kv_layout(), 5);
  std::vector<kv::BlockId> blocks;
  for (uint32_t i = 0; i < 5; ++i) blocks.push_back(kv::BlockId{i});
  std::vector<float> rows(prompt.size() * width);
  const model::Slice slice{prompt, 0, blocks, model::LogitRows::kAll};
  ASSERT_TRUE(model->Forward({&slice, 1}, arena, rows, {}).ok());

  for (uint32_t chunk : {32u, 96u, 512u}) {
    Options options = PoolOf(32);
    options.chunk_tokens = chunk;
    Recorder recorder;
    const auto engine = MakeEngine(fake, options, &recorder);
    const SequenceSpec neighbour = MakeSpec(7, RandomPrompt(random, 300, fake), 20);
    engine->Submit(neighbour);
    SequenceSpec spec = MakeSpec(1, prompt, 2);
    spec.sampling.prompt_logprobs = 3;
    spec.sampling.logprobs = 3;
    const Heard heard = RunAlone(*engine, recorder, spec);
    ASSERT_EQ(heard.prompt_logprobs.size(), prompt.size() - 1) << chunk;
    for (size_t i = 0; i + 1 < prompt.size(); ++i) {
      const auto expected =
          *sampling::ComputeLogprobs(std::span(rows).subspan(i * width, width), prompt[i + 1], 3);
      ASSERT_EQ(heard.prompt_logprobs[i].logprob, expected.logprob) << i;
      ASSERT_EQ(heard.prompt_logprobs[i].top, expected.top) << i;
    }
    EXPECT_EQ(heard.samples.size(), 2u);
    ASSERT_TRUE(recorder.WaitForEnd(neighbour.ref));
    ExpectIdle(*engine);
  }
}

// The same prompt twice at once, with and without penalties, in both orders.
TEST(Engine, PenaltiesOfOneSequenceDoNotTouchItsNeighbour) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(32), &recorder);
  std::mt19937 random(6);
  const std::vector<TokenId> prompt = RandomPrompt(random, 40, {});
  SequenceSpec penalized = MakeSpec(1, prompt, 12);
  penalized.sampling = {.repetition_penalty = 2, .presence_penalty = 1, .frequency_penalty = 1};
  SequenceSpec plain = MakeSpec(2, prompt, 7);
  plain.sampling = {.temperature = 1, .top_k = 1, .seed = 99};
  const std::vector<TokenId> expected_penalized = RunAlone(*engine, recorder, penalized).tokens;
  const std::vector<TokenId> expected_plain = RunAlone(*engine, recorder, plain).tokens;
  for (bool plain_first : {false, true}) {
    recorder.Forget();
    engine->Submit(plain_first ? plain : penalized);
    engine->Submit(plain_first ? penalized : plain);
    ASSERT_TRUE(recorder.WaitForEnd(plain.ref) && recorder.WaitForEnd(penalized.ref));
    EXPECT_EQ(recorder.Of(penalized.ref).tokens, expected_penalized);
    EXPECT_EQ(recorder.Of(plain.ref).tokens, expected_plain);
  }
}

TEST(Engine, NoEndTokenBeforeMinTokensAndThenAtOnce) {
  Recorder recorder;
  FakeOptions fake;
  fake.script = std::vector<TokenId>(fake.vocabulary_size, 2);  // always the end token
  const auto engine = MakeEngine(fake, PoolOf(16), &recorder);
  SequenceSpec spec = MakeSpec(1, {5}, 9);
  spec.stop_tokens = {2, 3};
  spec.sampling.min_tokens = 4;
  const Heard heard = RunAlone(*engine, recorder, spec);
  ASSERT_EQ(heard.tokens.size(), 5u);
  EXPECT_EQ(heard.end.reason, FinishReason::kStop);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(heard.tokens[i] != 2 && heard.tokens[i] != 3);
  EXPECT_EQ(heard.tokens[4], 2u);
}

TEST(Engine, PromptLogprobsOfAPromptOfOneTokenAreNone) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(16), &recorder);
  SequenceSpec spec = MakeSpec(1, {5}, 1);
  spec.sampling.prompt_logprobs = 3;
  const Heard heard = RunAlone(*engine, recorder, spec);
  EXPECT_TRUE(heard.prompt_logprobs.empty());
  EXPECT_EQ(heard.tokens.size(), 1u);
}

TEST(Engine, PaddingRowsOfTheHeadAreNeverSampled) {
  FakeOptions fake;
  fake.usable_vocabulary = 900;
  Recorder recorder;
  const auto engine = MakeEngine(fake, PoolOf(16), &recorder);
  SequenceSpec spec = MakeSpec(1, {1}, 400);
  spec.sampling = {.temperature = 2, .seed = 3};
  const Heard heard = RunAlone(*engine, recorder, spec);
  EXPECT_EQ(heard.tokens.size(), 400u);
  for (TokenId token : heard.tokens) ASSERT_LT(token, 900u);
  ExpectIdle(*engine);
}

TEST(Engine, NanLogitsEndOnlyTheirSequence) {
  FakeOptions fake;
  fake.nan_token = 999;
  Recorder recorder;
  const auto engine = MakeEngine(fake, PoolOf(64), &recorder);
  const auto healthy = MakeSpec(1, {1, 2, 3}, 100);
  engine->Submit(healthy);
  ASSERT_TRUE(recorder.WaitForTokens(healthy.ref, 1));
  const Heard sick = RunAlone(*engine, recorder, MakeSpec(2, {4, 999}, 5));
  EXPECT_EQ(sick.end.status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(sick.tokens.empty());
  ASSERT_TRUE(recorder.WaitForEnd(healthy.ref));
  EXPECT_EQ(recorder.Of(healthy.ref).tokens, FakeReference(fake, healthy.prompt, 100));
  ExpectIdle(*engine);
}

TEST(Engine, FailedStepEndsItsSequencesAndTheEngineGoesOn) {
  FakeOptions fake;
  fake.fail_token = 999;
  Recorder recorder;
  const auto engine = MakeEngine(fake, PoolOf(64), &recorder);
  const Heard failed = RunAlone(*engine, recorder, MakeSpec(1, {4, 999}, 5));
  EXPECT_EQ(failed.end.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.end.status.message()), HasSubstr("the fake device failed"));
  const auto next = MakeSpec(2, {1, 2, 3}, 20);
  EXPECT_EQ(RunAlone(*engine, recorder, next).tokens, FakeReference(fake, next.prompt, 20));
  ExpectIdle(*engine);
}

TEST(Engine, DrainRefusesNewWorkAndFinishesTheRest) {
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine({}, PoolOf(64), &recorder, nullptr, &gate);
  gate.Close();
  const auto running = MakeSpec(1, {1, 2, 3}, 50);
  engine->Submit(running);
  ASSERT_TRUE(gate.WaitForStep());
  std::atomic<int> drained = 0;
  engine->Drain([&drained] { ++drained; });
  const auto late = MakeSpec(2, {1}, 1);
  engine->Submit(late);
  gate.Open();
  ASSERT_TRUE(recorder.WaitForEnd(late.ref));
  EXPECT_EQ(recorder.Of(late.ref).end.status.code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(recorder.WaitForEnd(running.ref));
  EXPECT_EQ(recorder.Of(running.ref).tokens.size(), 50u);
  EXPECT_TRUE(Eventually([&drained] { return drained == 1; }));
  ExpectIdle(*engine);
}

// A stream goes on beside a long prompt, whose chunks are as short as they must be.
TEST(Engine, ChunksBesideRunningRowsStayWithinTheStall) {
  FakeOptions fake;
  fake.delay_per_token = absl::Microseconds(200);
  std::mt19937 random(1);
  const auto prompt = RandomPrompt(random, 1024, fake);
  const auto tokens_beside = [&](absl::Duration stall) {
    Recorder recorder;
    Options options = PoolOf(128);
    options.chunk_stall = stall;
    const auto engine = MakeEngine(fake, options, &recorder);
    for (uint64_t key = 10; key < 26; ++key) {  // are measured
      RunAlone(*engine, recorder, MakeSpec(key, RandomPrompt(random, 64, fake), 1));
    }
    const auto stream = MakeSpec(2, {1, 2, 3}, 2000);
    engine->Submit(stream);
    EXPECT_TRUE(recorder.WaitForTokens(stream.ref, 3));
    const size_t before = recorder.Of(stream.ref).tokens.size();
    EXPECT_EQ(RunAlone(*engine, recorder, MakeSpec(3, prompt, 1)).tokens,
              FakeReference(fake, prompt, 1));
    const size_t after = recorder.Of(stream.ref).tokens.size();
    engine->Cancel(stream.ref, absl::CancelledError(""));
    EXPECT_TRUE(recorder.WaitForEnd(stream.ref));
    return after - before;
  };
  EXPECT_LT(tokens_beside(absl::InfiniteDuration()), 12u) << "chunks of 512";
  EXPECT_GT(tokens_beside(absl::Milliseconds(15)), 12u) << "chunks of about 64";
}

TEST(Engine, ProgressShowsWhileIdleAndStandsStillInAHungStep) {
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine({}, PoolOf(64), &recorder, nullptr, &gate);
  const absl::Time first = engine->load().last_progress;
  EXPECT_TRUE(Eventually([&] { return engine->load().last_progress > first; }, absl::Seconds(2)));
  gate.Close();
  engine->Submit(MakeSpec(1, {1}, 1));
  ASSERT_TRUE(gate.WaitForStep());
  const absl::Time hung = engine->load().last_progress;
  absl::SleepFor(absl::Milliseconds(550));  // longer than the idle loop sleeps
  EXPECT_EQ(engine->load().last_progress, hung);
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return engine->load().last_progress > hung; }));
  ExpectIdle(*engine);
}

TEST(Engine, DestructionEndsEverySequence) {
  Recorder recorder;
  {
    const auto engine = MakeEngine({}, PoolOf(64), &recorder);
    for (uint64_t key = 1; key <= 5; ++key) engine->Submit(MakeSpec(key, {1}, 2000));
    engine->Submit(MakeSpec(6, {1}, 10, Role::kDecode));
  }
  for (uint64_t key = 1; key <= 6; ++key) {
    EXPECT_EQ(recorder.Of({1, key}).ends, 1u);
    EXPECT_EQ(recorder.Of({1, key}).end.status.code(), absl::StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace baton::engine
