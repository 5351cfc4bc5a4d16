// SPDX-License-Identifier: Apache-2.0
// The queue, draining, status and gauges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status.h"
#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST_F(DispatcherTest, WithoutWorkersARequestWaitsAWhileThenNamesTheRole) {
  AttachPrefill();
  const auto client = Submit(Request());
  Advance(absl::Milliseconds(999));
  EXPECT_FALSE(client->ended());
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(client->status().code(), Code::kUnavailable);
  EXPECT_EQ(client->status().message(), "no decode worker is attached");
  EXPECT_TRUE(rpc::RetryAfterOf(client->status()).has_value());
}

TEST_F(DispatcherTest, SplitWithoutAPrefillWorkerWaitsForOneThatRestarts) {
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_SPLIT));
  Advance(absl::Milliseconds(500));
  AttachPrefill();
  EXPECT_EQ(d->assigns.size(), 1u);
  Advance(absl::Seconds(1));
  EXPECT_FALSE(client->ended());

  core_->CloseLink(kP, now_);
  const auto second = Submit(Request(v1::PATH_SPLIT));
  Beat(kD);
  Advance(absl::Seconds(1));
  EXPECT_EQ(second->status().message(), "no prefill worker is attached");
}

TEST_F(DispatcherTest, RequestsBeyondTheBoundAreRefusedWithARetryHint) {
  options_.queue = {2, 1000};
  Make();
  Submit(Request());
  Submit(Request());
  const auto third = Submit(Request());
  EXPECT_EQ(third->status().code(), Code::kResourceExhausted);
  EXPECT_NE(third->status().message().find("2 requests wait; the limit is 2"), std::string::npos);
  EXPECT_TRUE(rpc::RetryAfterOf(third->status()).has_value());
}

TEST_F(DispatcherTest, PromptTokensBeyondTheBoundAreRefused) {
  options_.queue = {100, 5};
  Make();
  Submit(Request());
  EXPECT_EQ(Submit(Request())->status().code(), Code::kResourceExhausted);
}

TEST_F(DispatcherTest, FreedRoomGoesToTheNextInLine) {
  const auto d = AttachDecode("d", kD, 1);  // one request of 10 tokens
  const auto first = Submit(Request());
  const auto second = Submit(Request());
  const auto third = Submit(Request());
  ASSERT_EQ(d->assigns.size(), 1u);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'A'}).End(key, v1::FINISH_REASON_LENGTH));
  ASSERT_EQ(d->assigns.size(), 2u);
  // A cancelled sequence holds its room until the worker says it is gone.
  core_->Cancel(2, now_);
  EXPECT_EQ(d->assigns.size(), 2u);
  Say(kD, Step().Fail(d->assigns[1].sequence_key(), Code::kCancelled, ""));
  EXPECT_EQ(d->assigns.size(), 3u);
  EXPECT_TRUE(first->status().ok());
  EXPECT_FALSE(third->ended());
}

TEST_F(DispatcherTest, RequestThatCanNeverFitIsRefusedAtOnceAndBlocksNobody) {
  const auto d = AttachDecode("d", kD, 2);
  ValidatedRequest big = Request();
  big.max_tokens = 19;  // 21 tokens have KV, the last has none; the pool holds 20
  const auto client = Submit(big);
  EXPECT_EQ(client->status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rpc::FieldOf(client->status()), "stop.max_tokens");
  Submit(Request());
  EXPECT_EQ(d->assigns.size(), 1u);
}

TEST_F(DispatcherTest, EqualRequestIdsDoNotMix) {
  const auto d = AttachDecode();
  const auto first = Submit(Request(v1::PATH_LOCAL));
  const auto second = Submit(Request(v1::PATH_LOCAL));
  const uint64_t a = d->assigns[0].sequence_key(), b = d->assigns[1].sequence_key();
  Say(kD, Step().Tokens(b, 0, {'B'}).Tokens(a, 0, {'A'}));
  core_->Cancel(1, now_);
  EXPECT_EQ(first->text, "A");
  EXPECT_EQ(second->text, "B");
  EXPECT_FALSE(second->ended());
}

TEST_F(DispatcherTest, DrainRefusesNewRequestsAndLetsOthersFinish) {
  const Split s = StartSplit();
  core_->Drain();
  EXPECT_FALSE(core_->ready());
  EXPECT_EQ(Submit(Request())->status().code(), Code::kUnavailable);
  EXPECT_FALSE(core_->idle());
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).End(s.p_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, EndAllEndsEverythingOnce) {
  const Split s = StartSplit();
  core_->EndAll(now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  EXPECT_TRUE(s.p->closed.has_value());
  EXPECT_TRUE(s.d->closed.has_value());
  EXPECT_EQ(s.p->cancels.size(), 1u);
}

TEST_F(DispatcherTest, StatusShowsWorkersAndRequests) {
  const Split s = StartSplit();
  Submit(Request(v1::PATH_LOCAL));
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_draining(true);
  beat.mutable_heartbeat()->mutable_load()->set_running_sequences(5);
  core_->OnMessage(kD, beat, now_);
  Submit(Request(v1::PATH_LOCAL));
  v1::GetClusterStatusResponse status;
  core_->FillStatus(&status);
  EXPECT_EQ(status.running_requests(), 2u);
  EXPECT_EQ(status.queued_requests(), 1u);
  ASSERT_EQ(status.workers_size(), 2);
  EXPECT_EQ(status.workers(1).worker_id(), "d");
  EXPECT_TRUE(status.workers(1).draining());
  EXPECT_EQ(status.workers(1).load().running_sequences(), 5u);
}

TEST_F(DispatcherTest, GaugesReturnToZeroWithoutNewTraffic) {
  const Split s = StartSplit();
  EXPECT_NE(metrics_.Text().find("baton_router_requests_running 1"), std::string::npos);
  core_->Cancel(last_request_, now_);
  const std::string text = metrics_.Text();
  EXPECT_NE(text.find("baton_router_requests_running 0"), std::string::npos) << text;
  EXPECT_NE(text.find("baton_router_requests_total{code=\"CANCELLED\"} 1"), std::string::npos);
  EXPECT_NE(text.find("baton_router_workers{role=\"decode\"} 1"), std::string::npos);
  core_->CloseLink(kD, now_);
  EXPECT_NE(metrics_.Text().find("baton_router_workers{role=\"decode\"} 0"), std::string::npos);
}

TEST_F(DispatcherTest, AnswersThatNoWorkerCanRunTogetherAreRefusedByField) {
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_max_sequences(4);
  Attach(kD, hello);
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.choices = request.choices_made = request.width = 5;
  const auto client = Submit(request);
  EXPECT_EQ(client->status().code(), Code::kInvalidArgument);
  EXPECT_EQ(rpc::FieldOf(client->status()), "decoding.n");
  EXPECT_NE(client->status().message().find("is 5; no decode worker here runs more than 4"),
            std::string::npos);
  // Four fit, and then nobody else does.
  request.choices = request.choices_made = request.width = 4;
  EXPECT_FALSE(Submit(request)->ended());
  Submit(Request(v1::PATH_LOCAL));
  v1::GetClusterStatusResponse status;
  core_->FillStatus(&status);
  EXPECT_EQ(status.queued_requests(), 1u);
  EXPECT_EQ(status.running_requests(), 1u);
}

}  // namespace
}  // namespace baton::router
