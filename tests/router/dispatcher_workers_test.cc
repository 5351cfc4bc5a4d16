// SPDX-License-Identifier: Apache-2.0
// Workers that attach, and workers that go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST_F(DispatcherTest, LostDecodeWorkerEndsItsStreamsOnceAndFreesThePartner) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  core_->CloseLink(kD, now_);
  core_->CloseLink(kD, now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  EXPECT_NE(s.client->status().message().find("decode worker d was lost"), std::string::npos);
  EXPECT_EQ(s.p->cancels, std::vector<uint64_t>{s.p_key});
}

TEST_F(DispatcherTest, LostPrefillWorkerEndsTheStreamBeforeTheHandOff) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  core_->CloseLink(kP, now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  EXPECT_EQ(s.d->cancels, std::vector<uint64_t>{s.d_key});
}

TEST_F(DispatcherTest, LostPrefillWorkerDoesNotHurtAfterTheHandOff) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}).HandedOff(s.p_key));
  core_->CloseLink(kP, now_);
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}).End(s.d_key, v1::FINISH_REASON_STOP));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "AB");
}

TEST_F(DispatcherTest, DecodedTokensProveTheHandOffWhenThePrefillWorkerIsLostBeforeSayingSo) {
  const Split s = StartSplit();
  Say(kP, Step().Tokens(s.p_key, 0, {'A'}));
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  core_->CloseLink(kP, now_);
  EXPECT_FALSE(s.client->ended());
  Say(kD, Step().Tokens(s.d_key, 2, {'C'}).End(s.d_key, v1::FINISH_REASON_STOP));
  EXPECT_EQ(s.client->text, "ABC");
  EXPECT_TRUE(s.client->status().ok());
}

TEST_F(DispatcherTest, TokensOfALostPrefillWorkerThatNeverCameEndTheStream) {
  const Split s = StartSplit();
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));
  core_->CloseLink(kP, now_);
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
}

TEST_F(DispatcherTest, PrefillWorkerLostBeforeItGotThePromptIsReplaced) {
  AttachPrefill();
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_SPLIT));
  core_->CloseLink(kP, now_);
  EXPECT_FALSE(client->ended());
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{d->assigns[0].sequence_key()});
  const auto p2 = AttachPrefill("p2", 7);
  ASSERT_EQ(d->assigns.size(), 2u);
  Accept(kD, d->assigns[1].sequence_key());
  EXPECT_EQ(p2->assigns.size(), 1u);
}

TEST_F(DispatcherTest, SilentWorkerLosesItsLease) {
  const Split s = StartSplit();
  Advance(absl::Seconds(2));
  Beat(kP);
  Advance(absl::Seconds(1));
  EXPECT_EQ(s.client->status().code(), Code::kUnavailable);
  ASSERT_TRUE(s.d->closed.has_value());
  EXPECT_EQ(s.d->closed->code(), Code::kUnavailable);
  EXPECT_FALSE(s.p->closed.has_value());
  Say(kD, Step().Tokens(s.d_key, 1, {'B'}));  // too late
  EXPECT_EQ(s.client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, LinkWithoutHelloIsClosedAfterTheLease) {
  auto link = std::make_shared<FakeLink>();
  core_->OpenLink(9, link, now_);
  Advance(absl::Seconds(3));
  EXPECT_TRUE(link->closed.has_value());
}

TEST_F(DispatcherTest, WelcomeFollowsHelloAndReadsGoOn) {
  const auto d = AttachDecode();
  EXPECT_TRUE(d->welcomed);
  EXPECT_EQ(d->reads, 2);
  EXPECT_TRUE(core_->ready());
}

TEST_F(DispatcherTest, OtherModelIsRefusedNamingBothFingerprints) {
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_model_fingerprint("beef");
  const auto link = Attach(kD, hello);
  ASSERT_TRUE(link->closed.has_value());
  EXPECT_EQ(link->closed->code(), Code::kFailedPrecondition);
  EXPECT_NE(link->closed->message().find("beef"), std::string::npos);
  EXPECT_NE(link->closed->message().find("f00d"), std::string::npos);
  EXPECT_FALSE(core_->ready());
}

TEST_F(DispatcherTest, OtherProtocolVersionIsRefused) {
  v1::WorkerMessage hello = MakeHello("d", v1::WORKER_ROLE_DECODE);
  hello.mutable_hello()->set_protocol_version(3);
  EXPECT_EQ(Attach(kD, hello)->closed->code(), Code::kFailedPrecondition);
}

TEST_F(DispatcherTest, IdOfALiveWorkerIsTakenAndFreeOnceItIsGone) {
  AttachDecode("d", 5);
  EXPECT_EQ(AttachDecode("d", 6)->closed->code(), Code::kAlreadyExists);
  core_->CloseLink(5, now_);
  EXPECT_FALSE(AttachDecode("d", 7)->closed.has_value());
}

TEST_F(DispatcherTest, FirstMessageMustBeHello) {
  auto link = std::make_shared<FakeLink>();
  core_->OpenLink(9, link, now_);
  Beat(9);
  EXPECT_EQ(link->closed->code(), Code::kInvalidArgument);
}

TEST_F(DispatcherTest, FakeModelIsTakenFromTheFirstWorker) {
  ModelSlot slot(nullptr, "named");
  core_ = std::make_unique<Dispatcher>(DispatcherOptions{}, &slot, &router_metrics_);
  EXPECT_EQ(slot.Get(), nullptr);
  AttachDecode();
  ASSERT_NE(slot.Get(), nullptr);
  EXPECT_EQ(slot.Get()->name, "named");
  EXPECT_EQ(slot.Get()->vocabulary, 512u);
  EXPECT_EQ(slot.Get()->context, 100u);
}

}  // namespace
}  // namespace baton::router
