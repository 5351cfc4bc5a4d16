// SPDX-License-Identifier: Apache-2.0
// Steps that are started before the one before is read: on a fake model whose steps run
// as late as a device's may (fake_queue.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"
#include "tests/common/engine/reference_answers.h"

namespace baton::engine {
namespace {

using absl::StatusCode;
using model::FakeOptions;
using ::testing::HasSubstr;

FakeOptions Queued(FakeOptions fake = {}) {
  fake.queues = true;
  return fake;
}

// Token t is followed by t + 1.
FakeOptions Counting() {
  FakeOptions fake = Queued();
  for (TokenId t = 0; t < fake.vocabulary_size; ++t) {
    fake.script.push_back((t + 1) % fake.vocabulary_size);
  }
  return fake;
}

TEST(RunAhead, TokensAreThoseOfStepsOneByOne) {
  const FakeOptions fake = Queued();
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard);
  std::mt19937 random(1);
  for (uint64_t key = 1; key <= 5; ++key) {
    SequenceSpec spec = MakeSpec(key, RandomPrompt(random, 20 * key, fake), 100);
    if (key % 2 == 0) spec.sampling = {.temperature = 0.9f, .top_k = 50, .seed = key};
    engine->Submit(spec);
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    ExpectEqual(AnswersOf(heard.Of(spec.ref)), ReferenceAnswers(fake, spec));
  }
  // All but the prompts', and the first behind each.
  EXPECT_GE(engine->load().steps_ahead, 5u * 98);
  EXPECT_EQ(engine->load().steps, 5u * 100);
  ExpectIdle(*engine);
}

// The step behind has a row for it already, which counts no more.
TEST(RunAhead, NothingIsHeardBehindAnEndToken) {
  const FakeOptions fake = Counting();
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 6; ++key) {
    specs.push_back(MakeSpec(key, {10}, 500));
    specs.back().stop_tokens = {static_cast<TokenId>(20 + 7 * key)};
    engine->Submit(specs.back());
  }
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    EXPECT_EQ(heard.Of(spec.ref).tokens.size(), 10 + 7 * spec.ref.key);
    EXPECT_EQ(heard.Of(spec.ref).end.reason, FinishReason::kStop);
  }
  EXPECT_GT(engine->load().steps_ahead, 30u);
  ExpectIdle(*engine);
}

// A step in flight still writes a position of a sequence that has ended: whoever gets
// blocks next finds in them what he has written.
TEST(RunAhead, BlocksOfAnEndedSequenceAreNotGivenAwayBeforeTheStepIsRead) {
  FakeOptions fake = Counting();
  fake.delay_per_step = absl::Milliseconds(3);
  Recorder heard;
  Options options = PoolOf(5);
  options.prefix_cache = false;
  const auto engine = MakeEngine(fake, options, &heard);
  SequenceSpec running = MakeSpec(1, std::vector<TokenId>(40, 10), 100);
  running.stop_tokens = {30};  // at position 59, in its second block
  const SequenceSpec landing = MakeSpec(2, std::vector<TokenId>(150, 1), 10, Role::kDecode);
  engine->Submit(running);
  ASSERT_TRUE(heard.WaitForTokens(running.ref, 2));
  engine->Submit(landing);
  constexpr int kPattern = 0x5a;
  std::promise<std::vector<kv::BlockId>> granted;
  // All five blocks, which it gets when the other has ended.
  const auto fill = [&](absl::StatusOr<Engine::Reservation> reservation) {
    ASSERT_TRUE(reservation.ok());
    for (const kv::BlockId block : reservation->blocks) {
      std::memset(engine->arena().Layer(block, 0), kPattern, kFakeBlock);
    }
    granted.set_value(reservation->blocks);
  };
  engine->Reserve(landing.ref, 150, kv::KvOrigin::kOwn, fill);
  const std::vector<kv::BlockId> blocks = granted.get_future().get();
  ASSERT_TRUE(heard.WaitForEnd(running.ref));
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(engine->CheckIntegrity().ok());
  EXPECT_GT(engine->load().steps_ahead, 15u);
  ASSERT_EQ(blocks.size(), 5u);
  for (const kv::BlockId block : blocks) {
    const std::byte* const bytes = engine->arena().Layer(block, 0);
    EXPECT_TRUE(std::all_of(bytes, bytes + kFakeBlock,
                            [](std::byte byte) { return byte == std::byte{kPattern}; }));
  }
  engine->ReleaseReservation(landing.ref, absl::CancelledError("enough"));
  ASSERT_TRUE(heard.WaitForEnd(landing.ref));
  ExpectIdle(*engine);
}

// What a token depends on beside the model is at hand only when the one before is read.
TEST(RunAhead, WaitsForTokensThatOthersDependOn) {
  const FakeOptions fake = Queued();
  std::vector<SequenceSpec> specs(5, MakeSpec(1, {5, 6, 7, 8}, 40));
  specs[0].sampling.repetition_penalty = 1.3f;
  specs[1].sampling.frequency_penalty = 0.5f;
  specs[2].sampling.bad_sequences = {{5, 6}, {9, 8}};
  specs[3].sampling.logprobs = 1;
  specs[4].phases = {{.sampling = {}, .max_tokens = 38}, {.sampling = {.temperature = 1}}};
  for (const SequenceSpec& spec : specs) {
    Recorder heard;
    const auto engine = MakeEngine(fake, PoolOf(64), &heard);
    engine->Submit(spec);
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    ExpectEqual(AnswersOf(heard.Of(spec.ref)), ReferenceAnswers(fake, spec));
    EXPECT_LE(engine->load().steps_ahead, spec.phases.empty() ? 0u : 2u);
  }
}

// By what the queue is asked for, as seen between engine and model.
class CountingModel final : public GatedModel, private model::StepQueue {
 public:
  CountingModel(std::unique_ptr<model::Model> model, Gate* gate, std::vector<uint32_t>* logit_rows)
      : GatedModel(std::move(model), gate), logit_rows_(logit_rows) {}
  model::StepQueue* queue() override { return this; }

 private:
  bool Chooses(const sampling::Params& params) const override { return inner()->Chooses(params); }
  absl::Status Start(std::span<const model::Slice> slices, const kv::KvArena& arena) override {
    return inner()->Start(slices, arena);
  }
  absl::StatusOr<model::StepResults> Collect() override {
    auto results = inner()->Collect();
    logit_rows_->push_back(static_cast<uint32_t>(results->logits.size() / info().vocabulary_size));
    return results;
  }
  model::StepQueue* inner() const { return const_cast<CountingModel*>(this)->GatedModel::queue(); }

  std::vector<uint32_t>* const logit_rows_;
};

TEST(RunAhead, LogitsComeBackOfRowsThatNeedThemAlone) {
  const FakeOptions fake = Queued();
  Gate gate;
  std::vector<uint32_t> logit_rows;
  Recorder heard;
  auto engine = EngineOf(std::make_unique<CountingModel>(FakeFor(fake), &gate, &logit_rows),
                         PoolOf(256), &heard);
  std::mt19937 random(3);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 6; ++key) {
    specs.push_back(MakeSpec(key, RandomPrompt(random, 30, fake), 30));
    specs.back().sampling = {.temperature = 0.8f, .seed = key};
  }
  specs[1].sampling.logprobs = 3;
  specs[3].sampling.typical_p = 0.9f;
  specs[4].sampling.repetition_penalty = 1.2f;
  specs[5].choices = 2;
  SubmitTogether(*engine, gate, specs);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    ExpectEqual(AnswersOf(heard.Of(spec.ref)), ReferenceAnswers(fake, spec));
    for (const sampling::Sample& sample : heard.Of(spec.ref).samples) {
      EXPECT_EQ(sample.logprobs.has_value(), spec.sampling.logprobs.has_value());
    }
  }
  ExpectIdle(*engine);
  engine.reset();
  // The two, and the row from which both choices begin.
  EXPECT_THAT(logit_rows, ::testing::Each(::testing::Le(3u)));
  EXPECT_THAT(logit_rows, ::testing::Contains(2u));
}

TEST(RunAhead, ErrorsOfARowEndItsSequenceAlone) {
  FakeOptions fake = Counting();
  fake.nan_token = 50;
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard);
  const SequenceSpec spoiled = MakeSpec(1, {30}, 100);
  SequenceSpec other = MakeSpec(2, {100}, 100), none = MakeSpec(3, {300}, 30);
  for (TokenId token = 0; token < fake.vocabulary_size; ++token) {
    none.sampling.bad_sequences.push_back({token});
  }
  for (const SequenceSpec& spec : {spoiled, other}) engine->Submit(spec);
  ASSERT_TRUE(heard.WaitForEnd(spoiled.ref) && heard.WaitForEnd(other.ref));
  EXPECT_EQ(heard.Of(spoiled.ref).tokens.size(), 20u);
  EXPECT_EQ(heard.Of(spoiled.ref).end.status.code(), StatusCode::kInternal);
  EXPECT_THAT(heard.Of(spoiled.ref).end.status.message(), HasSubstr("NaN"));
  EXPECT_TRUE(heard.Of(other.ref).end.status.ok());
  EXPECT_EQ(heard.Of(other.ref).tokens.size(), 100u);
  ExpectIdle(*engine);
}

TEST(RunAhead, AFailedStepEndsItsSequencesAndTheStepBehindIt) {
  FakeOptions fake = Counting();
  fake.fail_token = 50;
  Recorder heard;
  const auto engine = MakeEngine(fake, PoolOf(64), &heard);
  const std::vector<SequenceSpec> specs = {MakeSpec(1, {30}, 100), MakeSpec(2, {100}, 1000)};
  for (const SequenceSpec& spec : specs) engine->Submit(spec);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    EXPECT_EQ(heard.Of(spec.ref).end.status.code(), StatusCode::kInternal);
    EXPECT_THAT(heard.Of(spec.ref).end.status.message(), HasSubstr("the fake device failed"));
  }
  EXPECT_EQ(heard.Of(specs[0].ref).tokens.size(), 20u);
  ExpectIdle(*engine);
  const SequenceSpec next = MakeSpec(3, {200}, 20);
  engine->Submit(next);
  ASSERT_TRUE(heard.WaitForEnd(next.ref));
  EXPECT_EQ(heard.Of(next.ref).tokens.size(), 20u);
}

TEST(RunAhead, GuessesAreCheckedWhereTextRepeatsItself) {
  FakeOptions fake = Queued();
  for (TokenId t = 0; t < fake.vocabulary_size; ++t) fake.script.push_back(t % 40 + 3);
  for (const bool repeats : {true, false}) {
    Recorder heard;
    const auto engine = MakeEngine(repeats ? fake : Queued(), PoolOf(64), &heard);
    SequenceSpec spec = MakeSpec(1, {9, 8, 7}, 200);
    spec.draft_tokens = 8;
    engine->Submit(spec);
    ASSERT_TRUE(heard.WaitForEnd(spec.ref));
    EXPECT_EQ(heard.Of(spec.ref).tokens.size(), 200u);
    const Load load = engine->load();
    if (repeats) {
      EXPECT_GT(load.accepted_tokens, 80u);
    } else {
      EXPECT_GT(load.steps_ahead, 150u);
    }
  }
}

// What a step may run ahead with.
SequenceSpec PlainSpec(uint64_t key, std::mt19937& random, const FakeOptions& fake) {
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  SequenceSpec spec = MakeSpec(key, RandomPrompt(random, 1 + random() % 90, fake),
                               1 + static_cast<uint32_t>(random() % 90));
  sampling::Params& params = spec.sampling;
  params.seed = key;
  if (!one_in(3)) params.temperature = 0.9f;
  if (one_in(3)) params.top_k = 20;
  if (one_in(3)) params.top_p = 0.9f;
  if (one_in(4)) params.min_tokens = 10;
  if (one_in(6)) params.logit_bias = {{7, 4.0f}};
  if (one_in(6)) params.bad_sequences = {{5}, {8}};
  spec.stop_tokens = {2};
  if (one_in(2)) spec.stop_tokens = {2, 20, 30, 40, 50, 60};
  if (one_in(5)) spec.choices = 2 + static_cast<uint32_t>(random() % 2);
  if (one_in(6)) spec.window = {.tokens = 32, .sinks = one_in(2) ? 32u : 0u};
  return spec;
}

// Everything else that a request may ask for, too.
SequenceSpec AnySpec(uint64_t key, std::mt19937& random, const FakeOptions& fake) {
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  SequenceSpec spec = PlainSpec(key, random, fake);
  sampling::Params& params = spec.sampling;
  if (one_in(8)) params.repetition_penalty = 1.2f;
  if (one_in(8)) params.logprobs = 2;
  if (one_in(8)) params.typical_p = 0.8f;
  if (one_in(8)) params.bad_sequences = {{7, 8}, {8, 7}, {7, 7}};
  if (one_in(4)) spec.draft_tokens = 6;
  if (one_in(8)) {
    PhaseSpec second{.sampling = params};
    second.sampling.temperature = 0;
    spec.phases = {{.sampling = params, .max_tokens = 12}, second};
  }
  return spec;
}

class RunAheadStorm : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RunAheadStorm, TokensAndEndsAreThoseOfEachSequenceAlone) {
  const FakeOptions fake = Queued({.vocabulary_size = 200});
  std::mt19937 random(GetParam());
  Recorder heard;
  Options options = PoolOf(14);  // so few that sequences are put aside
  options.chunk_tokens = 64;
  options.max_sequences = 8;
  options.swap_bytes = GetParam() % 2 == 0 ? 1 << 18 : 0;
  options.kv_floor_blocks = GetParam() % 3 == 0 ? 2 : 0;
  options.kv_return_after = absl::Milliseconds(5);
  const auto engine = MakeEngine(fake, options, &heard);
  std::map<uint64_t, SequenceSpec> specs;
  std::set<uint64_t> disturbed;
  for (uint64_t key = 1; key <= 120; ++key) {
    const SequenceSpec spec =
        GetParam() % 4 == 0 ? AnySpec(key, random, fake) : PlainSpec(key, random, fake);
    specs.emplace(key, spec);
    engine->Submit(spec);
    if (random() % 6 == 0) {
      const uint64_t other = 1 + random() % key;
      disturbed.insert(other);
      if (random() % 2 == 0) {
        engine->Cancel({1, other}, absl::CancelledError("one"));
      } else {
        engine->CancelChoice({1, other}, 0, absl::CancelledError("choice"));
      }
    }
    if (random() % 2 == 0)
      absl::SleepFor(absl::Microseconds(static_cast<int64_t>(random() % 2000)));
  }
  for (const auto& [key, spec] : specs) {
    ASSERT_TRUE(heard.WaitForEnd(spec.ref)) << key;
    const Heard got = heard.Of(spec.ref);
    EXPECT_EQ(got.ends, 1u);
    const auto answers = AnswersOf(got), expected = ReferenceAnswers(fake, spec);
    SCOPED_TRACE(key);
    if (!disturbed.contains(key)) {
      EXPECT_TRUE(got.end.status.ok()) << got.end.status;
      ExpectEqual(answers, expected);
      continue;
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_LE(answers[i].tokens.size(), expected[i].tokens.size());
      EXPECT_TRUE(std::equal(answers[i].tokens.begin(), answers[i].tokens.end(),
                             expected[i].tokens.begin()));
    }
  }
  ExpectIdle(*engine);
  EXPECT_GT(engine->load().steps_ahead, 0u);
  RecordProperty("steps", std::to_string(engine->load().steps));
  RecordProperty("steps_ahead", std::to_string(engine->load().steps_ahead));
  RecordProperty("preemptions", std::to_string(engine->load().preemptions));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RunAheadStorm, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace baton::engine
