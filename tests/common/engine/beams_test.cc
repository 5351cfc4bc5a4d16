// SPDX-License-Identifier: Apache-2.0
// Beam search over shared blocks: the beams of the fake model, whose text
// depends on every byte of KV, equal those of rows computed without blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/engine/sequence.h"
#include "common/sampling/sampler.h"
#include "tests/common/engine/harness.h"
#include "tests/common/engine/reference_answers.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using sampling::BeamParams;
using sampling::EarlyStopping;

SequenceSpec Beams(uint64_t key, std::vector<TokenId> prompt, uint32_t max_tokens,
                   const BeamParams& beam, uint32_t choices = 1) {
  SequenceSpec spec = MakeSpec(key, std::move(prompt), max_tokens);
  spec.beam = beam;
  spec.choices = choices;
  return spec;
}

// A small vocabulary, so that beams end and part often.
FakeOptions SmallVocabulary() {
  FakeOptions fake;
  fake.vocabulary_size = 40;
  fake.usable_vocabulary = 38;
  return fake;
}

TEST(Beams, EqualTheReferenceOnOneWorkerAndOnTwo) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(128), PoolOf(128));
  Recorder alone_heard;
  const auto alone = MakeEngine(fake, PoolOf(128), &alone_heard);
  std::mt19937 random(1);
  uint64_t key = 0;
  for (const size_t length : {1, 31, 32, 33, 100}) {
    for (const BeamParams& beam :
         {BeamParams{2, 1, EarlyStopping::kHeuristic}, BeamParams{5, 0.5f, EarlyStopping::kAlways},
          BeamParams{8, 1.5f, EarlyStopping::kNever},
          BeamParams{1, -1, EarlyStopping::kHeuristic}}) {
      SequenceSpec spec =
          Beams(++key, RandomPrompt(random, length, fake), 45, beam, std::min(beam.width, 3u));
      spec.stop_tokens = {2, 9};
      spec.sampling.repetition_penalty = key % 2 == 0 ? 1.1f : 1;
      spec.sampling.min_tokens = key % 3 == 0 ? 5 : 0;
      pair.Submit(spec);
      alone->Submit(spec);
      ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      ASSERT_TRUE(alone_heard.WaitForEnd(spec.ref));
      const auto expected = ReferenceAnswers(fake, spec);
      ExpectEqual(AnswersOf(alone_heard.Of(spec.ref)), expected);
      ExpectEqual(AnswersOf(pair.decode_heard.Of(spec.ref)), expected);
      EXPECT_TRUE(pair.prefill_heard.Of(spec.ref).choices.empty());
      EXPECT_TRUE(pair.prefill_heard.Of(spec.ref).end.handed_off);
    }
  }
  EXPECT_EQ(pair.decode->load().prompt_tokens_computed, 0u);
  pair.ExpectIdle();
  ExpectIdle(*alone);
}

TEST(Beams, OfOneTokenAreTheBestOfTheLastRow) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(16), PoolOf(16));
  std::mt19937 random(2);
  const SequenceSpec spec = Beams(1, RandomPrompt(random, 64, fake), 1, {4, 1, {}}, 4);
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  ExpectEqual(AnswersOf(pair.decode_heard.Of(spec.ref)), ReferenceAnswers(fake, spec));
  pair.ExpectIdle();
}

TEST(Beams, CarryTheModelsOwnLogProbabilities) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(32), PoolOf(32));
  std::mt19937 random(3);
  SequenceSpec spec = Beams(1, RandomPrompt(random, 50, fake), 12, {3, 1, {}}, 3);
  spec.sampling.logprobs = 2;
  spec.sampling.repetition_penalty = 1.3f;
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  const Heard heard = pair.decode_heard.Of(spec.ref);
  ASSERT_EQ(heard.choices.size(), 3u);
  for (const auto& [index, choice] : heard.choices) {
    std::vector<TokenId> tokens = spec.prompt;
    for (const sampling::Sample& sample : choice.samples) {
      const std::vector<float> row = model::FakeLogits(fake, tokens);
      const auto expected =
          sampling::ComputeLogprobs(std::span(row).first(fake.usable_vocabulary), sample.token, 2);
      ASSERT_TRUE(sample.logprobs.has_value());
      EXPECT_EQ(sample.logprobs->logprob, expected->logprob);
      EXPECT_EQ(sample.logprobs->top, expected->top);
      tokens.push_back(sample.token);
    }
  }
}

TEST(Beams, PutAsideTogetherTheyGoOnWithTheSameTokens) {
  for (const uint64_t swap_bytes : {uint64_t{0}, uint64_t{64} << 20}) {
    const FakeOptions fake = SmallVocabulary();
    Options options = PoolOf(24);
    options.swap_bytes = swap_bytes;
    Pair pair(fake, PoolOf(64), options);
    std::mt19937 random(4);
    std::vector<SequenceSpec> specs;
    // All but one on the decode worker alone: there at once, whatever hand-offs take.
    for (uint64_t key = 1; key <= 8; ++key) {
      specs.push_back(Beams(key, RandomPrompt(random, 32 * (key % 4) + 5, fake), 120,
                            {4, 1, EarlyStopping::kNever}, 2));
      if (key == 3) {
        pair.Submit(specs.back());
      } else {
        pair.decode->Submit(specs.back());
      }
    }
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
      ExpectEqual(AnswersOf(pair.decode_heard.Of(spec.ref)), ReferenceAnswers(fake, spec));
    }
    EXPECT_GT(pair.decode->load().preemptions, 0u);
    EXPECT_EQ(pair.decode->load().swaps > 0, swap_bytes > 0);
    pair.ExpectIdle();
  }
}

TEST(Beams, AWindowIsSeenByEach) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(64), PoolOf(64));
  std::mt19937 random(5);
  SequenceSpec spec = Beams(1, RandomPrompt(random, 130, fake), 120, {4, 1, {}}, 4);
  spec.window = {.tokens = 32, .sinks = 32};
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  ExpectEqual(AnswersOf(pair.decode_heard.Of(spec.ref)), ReferenceAnswers(fake, spec));
  pair.ExpectIdle();
}

TEST(Beams, NanUnderOneEndsTheRequest) {
  FakeOptions fake = SmallVocabulary();
  std::mt19937 random(6);
  const SequenceSpec spec = Beams(1, RandomPrompt(random, 10, fake), 60, {6, 1, {}});
  fake.nan_token = ReferenceAnswers(fake, spec)[0].tokens[3];
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard);
  engine->Submit(spec);
  ASSERT_TRUE(heard.WaitForEnd(spec.ref));
  EXPECT_EQ(heard.Of(spec.ref).end.status.code(), absl::StatusCode::kInternal);
  ExpectIdle(*engine);
}

TEST(Beams, CancelAndDeadlineFreeWhatTheyHold) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(64), PoolOf(512));
  std::mt19937 random(7);
  const SequenceSpec spec = Beams(1, RandomPrompt(random, 100, fake), 2000, {6, 1, {}});
  pair.Submit(spec);
  ASSERT_TRUE(Eventually([&] { return pair.decode->load().steps > 20; }));
  pair.Cancel(spec.ref);
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.decode_heard.Of(spec.ref).end.status.code(), absl::StatusCode::kCancelled);
  SequenceSpec late = Beams(2, RandomPrompt(random, 100, fake), 2000, {6, 1, {}});
  late.deadline = absl::Now() + absl::Milliseconds(150);
  pair.Submit(late);
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(late.ref));
  EXPECT_EQ(pair.decode_heard.Of(late.ref).end.status.code(), absl::StatusCode::kDeadlineExceeded);
  pair.ExpectIdle();
}

TEST(Beams, ABlockThatTheCacheOrAnotherBranchHoldsIsNotWritten) {
  kv::BlockPool pool(2);
  Branch branch;
  branch.blocks = *pool.Allocate(1, kv::Owner::kRequest);
  branch.tokens.assign(20, 1);
  branch.computed = 19;
  EXPECT_TRUE(HasBlocksForNext(branch, pool));
  pool.Retain(branch.blocks[0], kv::Owner::kPrefixCache);
  EXPECT_TRUE(WritesShared(branch, pool));
  EXPECT_FALSE(HasBlocksForNext(branch, pool));
  pool.Release(branch.blocks[0], kv::Owner::kPrefixCache);
  pool.Retain(branch.blocks[0], kv::Owner::kRequest);
  EXPECT_TRUE(WritesShared(branch, pool));
  pool.Release(branch.blocks[0], kv::Owner::kRequest);
  EXPECT_FALSE(WritesShared(branch, pool));
}

// Phases.

TEST(Phases, EqualTheReferenceOnOneWorkerAndOnTwo) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(128), PoolOf(128));
  Recorder alone_heard;
  const auto alone = MakeEngine(fake, PoolOf(128), &alone_heard);
  sampling::Params warm;
  warm.temperature = 1.1f;
  warm.seed = 77;
  sampling::Params penal = warm;
  penal.repetition_penalty = 1.2f;
  const std::vector<std::vector<PhaseSpec>> plans = {
      {{.beam = BeamParams{4, 1, {}}, .max_tokens = 9}, {.sampling = warm}},
      {{.max_tokens = 5}, {.sampling = penal, .max_tokens = 20}},
      {{.sampling = warm, .until_tokens = {4, 8, 15}}, {.beam = BeamParams{3, 0, {}}}},
      {{.beam = BeamParams{3, 1, EarlyStopping::kAlways},
        .max_tokens = 40,
        .until_tokens = {1, 3, 5, 7, 11}},
       {.sampling = penal, .until_tokens = {6, 10, 12}},
       {.beam = BeamParams{5, 1, EarlyStopping::kNever}, .max_tokens = 7},
       {.sampling = warm}}};
  std::mt19937 random(8);
  uint64_t key = 0;
  for (int round = 0; round < 6; ++round) {
    for (const std::vector<PhaseSpec>& phases : plans) {
      SequenceSpec spec = MakeSpec(++key, RandomPrompt(random, 20 + 11 * round, fake), 60);
      spec.phases = phases;
      spec.stop_tokens = {2};
      pair.Submit(spec);
      alone->Submit(spec);
      ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      ASSERT_TRUE(alone_heard.WaitForEnd(spec.ref));
      const auto expected = ReferenceAnswers(fake, spec);
      ExpectEqual(AnswersOf(alone_heard.Of(spec.ref)), expected);
      ExpectEqual(AnswersOf(pair, spec.ref), expected);
    }
  }
  pair.ExpectIdle();
  ExpectIdle(*alone);
}

TEST(Phases, SampledOnesMayHaveSeveralChoices) {
  const FakeOptions fake = SmallVocabulary();
  Pair pair(fake, PoolOf(64), PoolOf(64));
  std::mt19937 random(9);
  SequenceSpec spec = MakeSpec(1, RandomPrompt(random, 40, fake), 50);
  sampling::Params warm;
  warm.temperature = 1;
  spec.phases = {{.sampling = warm, .until_tokens = {3, 5, 9, 20, 21, 22}},
                 {.max_tokens = 4},
                 {.sampling = warm}};
  spec.phases[1].max_tokens = 4;
  spec.choices = 5;
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  ExpectEqual(AnswersOf(pair, spec.ref), ReferenceAnswers(fake, spec));
}

TEST(Phases, ThatCannotBeRunAreRefused) {
  const FakeOptions fake = SmallVocabulary();
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard);
  std::mt19937 random(10);
  SequenceSpec endless = MakeSpec(1, RandomPrompt(random, 10, fake), 10);
  endless.phases = {{}, {}};
  SequenceSpec several = MakeSpec(2, RandomPrompt(random, 10, fake), 10);
  several.phases = {{.beam = BeamParams{2, 1, {}}, .max_tokens = 2}, {}};
  several.choices = 2;
  SequenceSpec wide = Beams(3, RandomPrompt(random, 10, fake), 10, {33, 1, {}});
  SequenceSpec few = Beams(4, RandomPrompt(random, 10, fake), 10, {2, 1, {}}, 3);
  for (const SequenceSpec& spec : {endless, several, wide, few}) {
    engine->Submit(spec);
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    EXPECT_EQ(heard.Of(spec.ref).end.status.code(), absl::StatusCode::kInvalidArgument);
  }
}

// Everything at once, in pools so small that groups are put aside in the middle
// of searches and phases.
TEST(Branches, StormOfAllStrategiesKeepsEveryToken) {
  const FakeOptions fake = SmallVocabulary();
  uint64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    Options decode = PoolOf(32 + random() % 6);
    decode.swap_bytes = seed % 2 == 0 ? 0 : uint64_t{1} << (18 + random() % 6);
    decode.chunk_tokens = seed % 3 == 0 ? 32 : 512;
    decode.prefix_cache = seed % 4 != 3;
    Pair pair(fake, PoolOf(64), decode);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 16; ++key) {
      SequenceSpec spec =
          MakeSpec(key, RandomPrompt(random, 1 + random() % 60, fake), 30 + random() % 90);
      sampling::Params warm;
      warm.temperature = 1;
      warm.seed = random();
      warm.presence_penalty = random() % 2 == 0 ? 0.5f : 0;
      const BeamParams beam{2 + static_cast<uint32_t>(random() % 4), 1,
                            static_cast<EarlyStopping>(random() % 3)};
      spec.stop_tokens = random() % 2 == 0 ? std::vector<TokenId>{2} : std::vector<TokenId>{};
      spec.sampling = warm;
      switch (random() % 4) {
        case 0:
          spec.choices = 1 + static_cast<uint32_t>(random() % 6);
          break;
        case 1:
          spec.beam = beam;
          spec.choices = 1 + static_cast<uint32_t>(random() % beam.width);
          break;
        case 2:
          spec.phases = {{.sampling = warm, .beam = beam, .max_tokens = 12, .until_tokens = {3, 5}},
                         {.sampling = warm, .until_tokens = {7, 8}},
                         {.sampling = warm, .beam = beam, .max_tokens = 9},
                         {.sampling = warm}};
          break;
        default:
          break;
      }
      specs.push_back(spec);
      if (key % 3 != 0) {
        pair.decode->Submit(spec);
      } else {
        pair.Submit(spec);
      }
    }
    for (const SequenceSpec& spec : specs) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " key " << spec.ref.key);
      if (spec.ref.key % 3 != 0) {
        ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
      } else {
        ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      }
      ExpectEqual(AnswersOf(pair, spec.ref), ReferenceAnswers(fake, spec));
    }
    preemptions += pair.decode->load().preemptions;
    pair.ExpectIdle();
  }
  EXPECT_GT(preemptions, 0u);
}

}  // namespace
}  // namespace baton::engine
