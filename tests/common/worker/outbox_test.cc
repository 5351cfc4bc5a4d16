// SPDX-License-Identifier: Apache-2.0
#include "common/worker/outbox.h"

#include <gtest/gtest.h>

namespace baton::worker {
namespace {

v1::StepOutput Tokens(uint64_t key, uint32_t first, int count) {
  v1::StepOutput step;
  v1::SequenceTokens* tokens = step.add_tokens();
  tokens->set_sequence_key(key);
  tokens->set_first_index(first);
  for (int i = 0; i < count; ++i) tokens->add_token_ids(1000000);
  return step;
}

TEST(Outbox, HelloGoesFirstAndHeartbeatLast) {
  Outbox outbox;
  outbox.SetHeartbeat({});
  outbox.AddStep(Tokens(1, 0, 1));
  outbox.AddAccepted(1);
  outbox.AddHello({});
  v1::WorkerMessage message;
  ASSERT_TRUE(outbox.Next(&message));
  EXPECT_TRUE(message.has_hello());
  ASSERT_TRUE(outbox.Next(&message));
  EXPECT_TRUE(message.has_accepted());
  ASSERT_TRUE(outbox.Next(&message));
  EXPECT_TRUE(message.has_step());
  ASSERT_TRUE(outbox.Next(&message));
  EXPECT_TRUE(message.has_heartbeat());
  EXPECT_TRUE(outbox.empty());
  EXPECT_FALSE(outbox.Next(&message));
}

TEST(Outbox, StepsThatWaitTravelInOneMessageInOrder) {
  Outbox outbox;
  for (uint32_t i = 0; i < 10; ++i) outbox.AddStep(Tokens(7, i, 1));
  v1::WorkerMessage message;
  ASSERT_TRUE(outbox.Next(&message));
  ASSERT_EQ(message.step().tokens_size(), 10);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(message.step().tokens(i).first_index(), i);
  EXPECT_FALSE(outbox.Next(&message));
  EXPECT_EQ(outbox.bytes(), 0);
}

TEST(Outbox, MergedMessagesStayBelowTheLimitAndLoseNothing) {
  Outbox outbox;
  constexpr uint32_t kSteps = 3000;
  for (uint32_t i = 0; i < kSteps; ++i) outbox.AddStep(Tokens(7, i, 100));
  EXPECT_GT(outbox.bytes(), 3 * Outbox::kMergeBytes);
  uint32_t next = 0;
  for (v1::WorkerMessage message; outbox.Next(&message);) {
    EXPECT_LE(message.step().ByteSizeLong(), Outbox::kMergeBytes + 1024);
    for (const v1::SequenceTokens& tokens : message.step().tokens()) {
      EXPECT_EQ(tokens.first_index(), next++);
    }
  }
  EXPECT_EQ(next, kSteps);
  EXPECT_EQ(outbox.bytes(), 0);
}

TEST(Outbox, OnlyTheNewestHeartbeatIsSent) {
  Outbox outbox;
  for (uint32_t i = 1; i <= 3; ++i) {
    v1::Heartbeat heartbeat;
    heartbeat.mutable_load()->set_running_sequences(i);
    outbox.SetHeartbeat(heartbeat);
  }
  v1::WorkerMessage message;
  ASSERT_TRUE(outbox.Next(&message));
  EXPECT_EQ(message.heartbeat().load().running_sequences(), 3);
  EXPECT_FALSE(outbox.Next(&message));
}

}  // namespace
}  // namespace baton::worker
