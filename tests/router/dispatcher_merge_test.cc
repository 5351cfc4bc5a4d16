// SPDX-License-Identifier: Apache-2.0
// Two workers' tokens become one answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST_F(DispatcherTest, MergesBothWorkersAndFinishesWithTheLedger) {
  const Split s = StartSplit();
  const int64_t t0 = absl::ToUnixMicros(now_);
  now_ += absl::Milliseconds(30);
  Step first;
  first.Started(s.p_key, t0 + 10'000, 2).Tokens(s.p_key, 0, {'A'});
  first.last().set_prefill_end_unix_us(t0 + 29'000);
  Say(kP, first);
  Say(kP, Step().HandedOff(s.p_key));
  now_ += absl::Milliseconds(20);
  Step second;
  second.Tokens(s.d_key, 1, {'B'});
  second.last().set_first_step_unix_us(t0 + 33'000);
  Say(kD, second);
  now_ += absl::Milliseconds(10);
  Say(kD,
      Step().Tokens(s.d_key, 2, {'C', FakeTokenizer::kEnd}).End(s.d_key, v1::FINISH_REASON_STOP));

  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "ABC");
  EXPECT_EQ(s.client->ids, (std::vector<uint32_t>{'A', 'B', 'C', FakeTokenizer::kEnd}));
  ASSERT_EQ(s.client->finished.size(), 1u);
  const v1::Finished& f = s.client->finished[0];
  EXPECT_EQ(f.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(f.usage().prompt_tokens(), 3u);
  EXPECT_EQ(f.usage().cached_prompt_tokens(), 2u);
  EXPECT_EQ(f.usage().completion_tokens(), 4u);
  EXPECT_EQ(f.route().prefill_worker(), "p");
  EXPECT_EQ(f.route().decode_worker(), "d");
  EXPECT_EQ(f.route().transport(), "shm");
  EXPECT_NEAR(f.timing().queue(), 10, 1e-6);
  EXPECT_NEAR(f.timing().prefill(), 20, 1e-6);
  EXPECT_NEAR(f.timing().first_token(), 30, 1e-6);
  EXPECT_NEAR(f.timing().transfer(), 4, 1e-6);
  EXPECT_NEAR(f.timing().decode(), 30, 1e-6);
  EXPECT_NEAR(f.timing().total(), 60, 1e-6);
  EXPECT_TRUE(s.p->cancels.empty());
  EXPECT_TRUE(s.d->cancels.empty());
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, TokensThatOvertakeTheFirstOneWaitForIt) {
  const Split s = StartSplit();
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  Say(kD, Step().Tokens(s.d_key, 2, {'C'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(s.client->ids.empty());
  EXPECT_FALSE(s.client->ended());
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key));
  EXPECT_EQ(s.client->text, "ABC");
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->finished[0].reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(DispatcherTest, AnswerWaitsForThePrefillWorkersEndSoThatItsRouteIsWhole) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(s.client->text, "AB");
  EXPECT_FALSE(s.client->ended());
  Say(kP, Step().HandedOff(s.p_key));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->finished[0].route().transport(), "shm");
  EXPECT_TRUE(s.p->cancels.empty());
}

TEST_F(DispatcherTest, AnswerThatWaitsForThePrefillWorkersEndOutlivesThatWorker) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  core_->CloseLink(kP, now_);
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "AB");
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, TokenZeroEndsTheAnswerThoughTheDecodeWorkerHearsOfItFirst) {
  const Split s = StartSplit();
  Say(kD, Step().Fail(s.d_key, Code::kCancelled, "the sender gave up"));
  EXPECT_FALSE(s.client->ended());
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).End(s.p_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "A");
  EXPECT_TRUE(core_->idle());
}

struct Broken {
  std::string name;
  uint32_t first;
  std::vector<uint32_t> ids;
};
class BrokenOrder : public DispatcherTest, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenOrder, IsInternalAndCancelsBothWorkers) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  Say(kD, Step().Tokens(s.d_key, GetParam().first, GetParam().ids));
  EXPECT_EQ(s.client->status().code(), Code::kInternal);
  EXPECT_EQ(s.client->text, "AB");
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
}

INSTANTIATE_TEST_SUITE_P(Merge, BrokenOrder,
                         ::testing::Values(Broken{"gap", 3, {'X'}}, Broken{"repeat", 1, {'B'}},
                                           Broken{"overlap", 1, {'B', 'C'}}, Broken{"empty", 2, {}},
                                           Broken{"too_many", 2, {1, 2, 3, 4, 5, 6}}),
                         [](const auto& test) { return test.param.name; });

TEST_F(DispatcherTest, WorkerCannotSpeakForAnothersSequence) {
  const Split s = StartSplit();
  Say(kD, Step().Tokens(s.p_key, 0, {'X'}).End(s.p_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->ids.empty());
  EXPECT_FALSE(s.client->ended());
}

TEST_F(DispatcherTest, PromptLogprobsComeBehindStartedWithTheirBytesAndInOrder) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.prompt = {'a', 'b', 'c', 'd'};
  request.sampling.set_prompt_logprobs(1);
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  const auto scored = [&](uint32_t first, int count) {
    v1::WorkerMessage message;
    v1::SequencePromptLogprobs* out = message.mutable_step()->add_prompt_logprobs();
    out->set_sequence_key(key);
    out->set_first_index(first);
    for (int i = 0; i < count; ++i) out->add_logprobs()->add_top()->set_token_id('z');
    return message;
  };
  core_->OnMessage(kD, scored(1, 2), now_);
  core_->OnMessage(kD, scored(3, 1), now_);
  EXPECT_TRUE(client->prompt_logprobs.empty());
  Say(kD, Step().Tokens(key, 0, {'x'}).End(key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(client->status().ok());
  ASSERT_EQ(client->prompt_logprobs.size(), 2u);
  EXPECT_EQ(client->prompt_logprobs[0].first_index(), 1u);
  EXPECT_EQ(client->prompt_logprobs[1].first_index(), 3u);
  EXPECT_EQ(client->prompt_logprobs[1].logprobs(0).token_bytes(), "d");
  EXPECT_EQ(client->prompt_logprobs[1].logprobs(0).top(0).token_bytes(), "z");
}

TEST_F(DispatcherTest, PromptLogprobsOutOfOrderAreInternal) {
  const auto d = AttachDecode();
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.sampling.set_prompt_logprobs(1);
  const auto client = Submit(request);
  v1::WorkerMessage message;
  v1::SequencePromptLogprobs* out = message.mutable_step()->add_prompt_logprobs();
  out->set_sequence_key(d->assigns[0].sequence_key());
  out->set_first_index(2);
  out->add_logprobs();
  core_->OnMessage(kD, message, now_);
  EXPECT_EQ(client->status().code(), Code::kInternal);
}

TEST_F(DispatcherTest, LogprobsTravelWithTheirTokensAndMustBeComplete) {
  ValidatedRequest request = Request();
  request.sampling.set_logprobs(2);
  const Split s = StartSplit(request);
  Step first;
  first.Tokens(s.p_key, 0, {'A'});
  first.last().add_logprobs()->set_logprob(-0.5);
  Say(kP, first);
  EXPECT_EQ(s.client->logprobs, 1);
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  EXPECT_EQ(s.client->status().code(), Code::kInternal);
}

}  // namespace
}  // namespace baton::router
