// SPDX-License-Identifier: Apache-2.0
// What is refused, with which words, and that the engine goes on after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

class EngineLimits : public ::testing::Test {
 protected:
  void Start(const model::FakeOptions& fake, const Options& options) {
    engine_ = MakeEngine(fake, options, &recorder_);
  }
  void TearDown() override { ExpectIdle(*engine_); }

  EndOutput EndOf(SequenceSpec spec) {
    spec.ref.key = ++key_;
    engine_->Submit(spec);
    EXPECT_TRUE(recorder_.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder_.Of(spec.ref).ends, 1u);
    return recorder_.Of(spec.ref).end;
  }
  void ExpectRefused(const SequenceSpec& spec, StatusCode code, const char* message) {
    const EndOutput end = EndOf(spec);
    EXPECT_EQ(end.status.code(), code) << message;
    EXPECT_THAT(std::string(end.status.message()), HasSubstr(message));
    EXPECT_EQ(end.reason, FinishReason::kNone);
    EXPECT_TRUE(EndOf(MakeSpec(0, {1}, 1)).status.ok()) << "the next one after " << message;
  }

  Recorder recorder_;
  std::unique_ptr<Engine> engine_;
  uint64_t key_ = 0;
};

TEST_F(EngineLimits, InvalidSequencesAreRefusedByName) {
  Start({}, PoolOf(300));
  ExpectRefused(MakeSpec(0, {}, 1), StatusCode::kInvalidArgument, "prompt is empty");
  ExpectRefused(MakeSpec(0, {1}, 0), StatusCode::kInvalidArgument, "max_tokens is 0");
  ExpectRefused(MakeSpec(0, {1, 1000}, 1), StatusCode::kInvalidArgument,
                "prompt token 1 is 1000; the vocabulary has 1000 tokens");
  SequenceSpec spec = MakeSpec(0, {1}, 1);
  spec.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(spec, StatusCode::kInvalidArgument, "temperature is nan");
  spec.sampling = {.top_p = 0};
  ExpectRefused(spec, StatusCode::kInvalidArgument, "top_p is 0");
  ExpectRefused(MakeSpec(0, {1}, 1, Role::kPrefill), StatusCode::kInvalidArgument,
                "hands nothing over");
}

TEST_F(EngineLimits, ContextIsKeptToTheLastPosition) {
  model::FakeOptions fake;
  fake.context_tokens = 64;
  Start(fake, PoolOf(10));
  const auto tokens = [](size_t count) { return std::vector<TokenId>(count, 3); };
  for (size_t length : {63, 64}) EXPECT_TRUE(EndOf(MakeSpec(0, tokens(length), 1)).status.ok());
  ExpectRefused(MakeSpec(0, tokens(65), 1), StatusCode::kInvalidArgument,
                "a prompt of 65 tokens and max_tokens 1 go beyond the context of 64 tokens");
  // The last token's own position is never computed.
  EXPECT_TRUE(EndOf(MakeSpec(0, tokens(60), 5)).status.ok());
  ExpectRefused(MakeSpec(0, tokens(60), 6), StatusCode::kInvalidArgument, "max_tokens 6");
  ExpectRefused(MakeSpec(0, tokens(60), UINT32_MAX), StatusCode::kInvalidArgument, "4294967295");
}

TEST_F(EngineLimits, WhatCanNeverFitIsRefusedAtOnceWithTheNumbers) {
  Start({}, PoolOf(32));  // 1,024 tokens
  const auto tokens = [](size_t count) { return std::vector<TokenId>(count, 3); };
  for (size_t length : {1023, 1024}) EXPECT_TRUE(EndOf(MakeSpec(0, tokens(length), 1)).status.ok());
  ExpectRefused(MakeSpec(0, tokens(1025), 1), StatusCode::kResourceExhausted,
                "KV for 1025 tokens, which is 33 blocks; the pool has 32");
  ExpectRefused(MakeSpec(0, tokens(1000), 100), StatusCode::kResourceExhausted,
                "KV for 1099 tokens, which is 35 blocks; the pool has 32");
  // A decode worker refuses it before its hand-off begins.
  ExpectRefused(MakeSpec(0, tokens(1000), 100, Role::kDecode), StatusCode::kResourceExhausted,
                "35 blocks");
}

TEST_F(EngineLimits, WaitingSequencesAreBounded) {
  Options options = PoolOf(64);
  options.max_waiting = 3;
  Start({}, options);
  for (int i = 0; i < 3; ++i) {
    engine_->Submit(MakeSpec(100 + static_cast<uint64_t>(i), {1}, 5, Role::kDecode));
  }
  const EndOutput refused = EndOf(MakeSpec(0, {1}, 5));
  EXPECT_EQ(refused.status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("the limit is 3"));
  engine_->CancelOwner(1, absl::CancelledError("end of the test"));
}

// While a step runs nobody looks at the mailbox: it has a bound of its own.
TEST(Engine, SubmitsDuringALongStepAreBounded) {
  Recorder recorder;
  Gate gate;
  Options options = PoolOf(64);
  options.max_waiting = 10;
  options.max_sequences = 5;
  const auto engine = MakeEngine({}, options, &recorder, nullptr, &gate);
  gate.Close();
  engine->Submit(MakeSpec(1000, {1}, 1));
  ASSERT_TRUE(gate.WaitForStep());
  for (uint64_t key = 1; key <= 100; ++key) engine->Submit(MakeSpec(key, {1}, 1));
  gate.Open();
  uint32_t refused = 0;
  for (uint64_t key = 1; key <= 100; ++key) {
    ASSERT_TRUE(recorder.WaitForEnd({1, key}));
    refused += recorder.Of({1, key}).end.status.code() == StatusCode::kResourceExhausted;
  }
  EXPECT_EQ(refused, 90u);
  ExpectIdle(*engine);
}

TEST_F(EngineLimits, ReferenceInUseIsRefusedAndFreeAgainAfterTheEnd) {
  Start({}, PoolOf(64));
  const auto spec = MakeSpec(77, {1, 2}, 5);
  SequenceSpec waiting = spec;
  waiting.role = Role::kDecode;
  engine_->Submit(waiting);
  engine_->Submit(spec);
  ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
  EXPECT_EQ(recorder_.Of(spec.ref).end.status.code(), StatusCode::kAlreadyExists);
  recorder_.Forget();
  engine_->Cancel(spec.ref, absl::CancelledError("x"));
  ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
  recorder_.Forget();
  engine_->Submit(spec);
  EXPECT_TRUE(recorder_.WaitForTokens(spec.ref, 5));
}

TEST(EngineOptions, AreCheckedByName) {
  const auto create = [](const Options& options) {
    Recorder recorder;
    auto model = model::MakeFakeModel({.max_step_tokens = 128});
    return Engine::Create(*std::move(model), options, &recorder, nullptr).status();
  };
  Options options = PoolOf(4);
  EXPECT_TRUE(create(options).ok());
  options.chunk_tokens = 33;
  EXPECT_THAT(std::string(create(options).message()), HasSubstr("chunk_tokens is 33"));
  options = PoolOf(4);
  options.max_sequences = 97;
  EXPECT_THAT(std::string(create(options).message()), HasSubstr("128 tokens of a model step"));
  options.max_sequences = 0;
  EXPECT_THAT(std::string(create(options).message()), HasSubstr("max_sequences is 0"));
  EXPECT_EQ(create(PoolOf(0)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(PoolOf(UINT32_MAX)).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton::engine
