// SPDX-License-Identifier: Apache-2.0
// Clients that leave, deadlines, and clients that do not read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST_F(DispatcherTest, CancelInTheQueueStartsNothing) {
  const auto client = Submit(Request());
  core_->Cancel(last_request_, now_);
  EXPECT_EQ(client->status().code(), Code::kCancelled);
  const auto d = AttachDecode();
  EXPECT_TRUE(d->assigns.empty());
  EXPECT_TRUE(core_->idle());
}

TEST_F(DispatcherTest, ClientThatLeftBeforeItsPromptWasTokenizedStartsNothing) {
  const auto d = AttachDecode();
  core_->Cancel(1, now_);  // not known yet
  auto client = std::make_shared<FakeClient>();
  client->health = absl::CancelledError("gone");
  core_->Submit({1, Request(), model_, client, now_, absl::InfiniteFuture()}, now_);
  EXPECT_EQ(client->status().code(), Code::kCancelled);
  EXPECT_TRUE(d->assigns.empty());
}

TEST_F(DispatcherTest, CancelWhileReservingReachesTheDecodeWorkerAlone) {
  const auto p = AttachPrefill();
  const auto d = AttachDecode();
  Submit(Request());
  core_->Cancel(last_request_, now_);
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{d->assigns[0].sequence_key()});
  Accept(kD, d->assigns[0].sequence_key());  // was under way
  EXPECT_TRUE(p->assigns.empty());
  EXPECT_TRUE(p->cancels.empty());
}

TEST_F(DispatcherTest, CancelInPrefillReachesBothWorkers) {
  const Split s = StartSplit();
  core_->Cancel(last_request_, now_);
  EXPECT_EQ(s.client->status().code(), Code::kCancelled);
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
}

TEST_F(DispatcherTest, CancelAfterTheHandOffReachesTheDecodeWorkerAlone) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key));
  core_->Cancel(last_request_, now_);
  core_->Cancel(last_request_, now_);
  EXPECT_TRUE(s.p->cancels.empty());
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
  EXPECT_EQ(s.client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, DeadlineInTheQueueIsKeptWithoutAnyTraffic) {
  options_.pair_wait = absl::Minutes(1);
  Make();
  const auto client = Submit(Request(), absl::Seconds(2));
  EXPECT_LE(core_->next_wake(), now_ + absl::Seconds(2));
  Advance(absl::Milliseconds(1999));
  EXPECT_FALSE(client->ended());
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(client->status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(client->status().message(), "the deadline passed in the queue");
}

TEST_F(DispatcherTest, DeadlineOfARunningRequestCancelsBothWorkers) {
  options_.lease = absl::Hours(1);
  Make();
  const auto p = AttachPrefill();
  const auto d = AttachDecode();
  const auto client = Submit(Request(), absl::Seconds(2));
  Accept(kD, d->assigns[0].sequence_key());
  Advance(absl::Seconds(2));
  EXPECT_EQ(client->status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(p->cancels.size(), 1u);
  EXPECT_EQ(d->cancels.size(), 1u);
}

TEST_F(DispatcherTest, RequestWhoseDeadlineHasPassedNeverStarts) {
  const auto d = AttachDecode();
  const auto client = Submit(Request(), absl::ZeroDuration());
  EXPECT_EQ(client->status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(d->assigns.empty());
}

TEST_F(DispatcherTest, ClientThatDoesNotReadIsEndedAndItsSequenceCancelled) {
  const Split s = StartSplit();
  s.client->health = absl::ResourceExhaustedError("reads too slowly");
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  EXPECT_EQ(s.client->status().code(), Code::kResourceExhausted);
  EXPECT_EQ(s.p->cancels.size(), 1u);
  EXPECT_EQ(s.d->cancels.size(), 1u);
}

TEST_F(DispatcherTest, StalledClientIsFoundByTheClockAlone) {
  const Split s = StartSplit();
  s.client->health = absl::ResourceExhaustedError("reads too slowly");
  Advance(absl::Seconds(1));
  EXPECT_EQ(s.client->status().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace baton::router
