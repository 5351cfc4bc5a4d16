// SPDX-License-Identifier: Apache-2.0
// The landing's side, with the test in the place of the transport.
#include "decode_worker/handoff_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "absl/time/clock.h"
#include "common/model/fake/fake_model.h"
#include "tests/common/worker/recording_listener.h"

namespace baton::decode_worker {
namespace {

using worker::AwaitAllFree;

class HandoffReceiverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.transports = {"tcp"};
    options_.worker_id = "decode-1";
    options_.handoff_timeout = absl::Seconds(20);
    auto fake = model::MakeFakeModel({});
    ASSERT_TRUE(fake.ok());
    ASSERT_TRUE(receiver_
                    .Prepare({.options = &options_,
                              .layout = (*fake)->kv_layout(),
                              .metrics = &metrics_,
                              .labels = {}})
                    .ok());
    auto engine = engine::Engine::Create(std::move(*fake), {.kv_blocks = 16}, &listener_, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    const absl::Status started = receiver_.Start(engine_.get());
    ASSERT_TRUE(started.ok()) << started;
  }

  void TearDown() override {
    receiver_.Stop();
    if (engine_ != nullptr) {
      EXPECT_TRUE(engine_->CheckIntegrity().ok());
    }
  }

  absl::Status Submit(uint64_t key, char handoff, bool foreign_kv = false) {
    engine::SequenceSpec spec;
    spec.ref = Ref(key);
    spec.role = engine::Role::kDecode;
    spec.prompt.assign(64, 5);
    spec.max_tokens = 4;
    spec.handoff_key = std::string(16, handoff);
    v1::Assign assign;
    assign.set_foreign_kv(foreign_kv);
    return receiver_.Submit(std::move(spec), assign);
  }

  // What the transport would do for a peer that asks for `handoff`.
  absl::StatusOr<transport::Grant> Reserve(char handoff, uint32_t prompt_tokens = 64,
                                           kv::KvOrigin origin = kv::KvOrigin::kOwn) {
    std::promise<absl::StatusOr<transport::Grant>> promise;
    auto future = promise.get_future();
    receiver_.Reserve(
        {.handoff_key = std::string(16, handoff), .prompt_tokens = prompt_tokens, .origin = origin},
        [&](absl::StatusOr<transport::Grant> grant) { promise.set_value(grant); });
    return future.get();
  }

  absl::Status Commit(uint64_t landing) {
    std::promise<absl::Status> promise;
    auto future = promise.get_future();
    receiver_.Committed(landing, {.first_tokens = {9}, .drawn = 1}, {},
                        [&](absl::Status status) { promise.set_value(status); });
    return future.get();
  }

  bool AwaitTransfers(uint32_t blocks) {
    return worker::AwaitLoad(*engine_, [blocks](const engine::Load& load) {
      return load.kv_blocks_transfers == blocks;
    });
  }

  static engine::SequenceRef Ref(uint64_t key) { return {.owner = 1, .key = key}; }

  worker::Options options_;
  metrics::Metrics metrics_;
  HandoffReceiver receiver_{ReceiverFlags{}};
  worker::RecordingListener listener_{&receiver_};
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(HandoffReceiverTest, AnnouncesWhereItListens) {
  v1::Hello hello;
  receiver_.Describe(&hello);
  ASSERT_EQ(hello.handoff_endpoints_size(), 1);
  EXPECT_EQ(hello.handoff_endpoints(0).transport(), "tcp");
  EXPECT_THAT(hello.handoff_endpoints(0).address(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(hello.transports(0), "tcp");
}

TEST_F(HandoffReceiverTest, UnknownKeyIsNotFound) {
  EXPECT_EQ(Reserve('x').status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HandoffReceiverTest, KvOfOtherKernelsNeedsTheRoutersLeave) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  const absl::Status refused = Reserve('a', 64, kv::KvOrigin::kMixed).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("--mixed-pairs"));
  EXPECT_TRUE(Reserve('a').ok()) << "the sequence still waits";
  ASSERT_TRUE(Submit(2, 'b', true).ok());
  EXPECT_TRUE(Reserve('b', 64, kv::KvOrigin::kMixed).ok());
}

TEST_F(HandoffReceiverTest, KeyInUseIsRefusedAndTheFirstStays) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  EXPECT_EQ(Submit(2, 'a').code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Reserve('a').ok());
}

TEST_F(HandoffReceiverTest, CommittedHandoffDecodesFromTokenOne) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  const auto grant = Reserve('a');
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(grant->blocks.size(), 2);
  EXPECT_EQ(grant->first_block, 0);
  EXPECT_TRUE(AwaitTransfers(2));
  EXPECT_TRUE(Commit(grant->landing_id).ok());
  const auto end = listener_.AwaitEnd(Ref(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->status.ok());
  EXPECT_EQ(listener_.Tokens(Ref(1)).size(), 3);
  EXPECT_TRUE(AwaitAllFree(*engine_));
}

TEST_F(HandoffReceiverTest, BlocksThatAreCachedAreNotAskedFor) {
  for (uint64_t key = 1; key <= 2; ++key) {
    ASSERT_TRUE(Submit(key, 'a').ok());
    const auto grant = Reserve('a');
    ASSERT_TRUE(grant.ok()) << grant.status();
    EXPECT_EQ(grant->first_block, key == 1 ? 0 : 2);
    EXPECT_EQ(grant->blocks.size(), key == 1 ? 2 : 0);
    EXPECT_TRUE(Commit(grant->landing_id).ok());
    ASSERT_TRUE(listener_.AwaitEnd(Ref(key)).has_value());
    EXPECT_TRUE(AwaitAllFree(*engine_));
  }
}

TEST_F(HandoffReceiverTest, ReservedBlocksOfCancelledSequenceStayUntilTheWriterIsGone) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  const auto grant = Reserve('a');
  ASSERT_TRUE(grant.ok());
  engine_->Cancel(Ref(1), absl::CancelledError("gone"));
  EXPECT_FALSE(listener_.AwaitEnd(Ref(1), absl::Milliseconds(50)).has_value());
  EXPECT_TRUE(AwaitTransfers(2));
  receiver_.Aborted(grant->landing_id, absl::CancelledError("revoked"));
  const auto end = listener_.AwaitEnd(Ref(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status, absl::CancelledError("gone"));
  EXPECT_TRUE(AwaitAllFree(*engine_));
}

TEST_F(HandoffReceiverTest, CommitOfCancelledSequenceIsRefusedAndFreesItsBlocks) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  const auto grant = Reserve('a');
  ASSERT_TRUE(grant.ok());
  engine_->Cancel(Ref(1), absl::CancelledError("gone"));
  EXPECT_EQ(Commit(grant->landing_id).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(listener_.AwaitEnd(Ref(1)).has_value());
  EXPECT_TRUE(AwaitAllFree(*engine_));
}

TEST_F(HandoffReceiverTest, LostWriterEndsTheSequenceWithItsStatus) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  const auto grant = Reserve('a');
  ASSERT_TRUE(grant.ok());
  receiver_.Aborted(grant->landing_id, absl::UnavailableError("the peer is gone"));
  const auto end = listener_.AwaitEnd(Ref(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(AwaitAllFree(*engine_));
  // Its key is spent.
  EXPECT_EQ(Reserve('a').status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HandoffReceiverTest, ReservationThatCannotFitWaitsForBlocks) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  std::vector<transport::Grant> grants;
  // Each takes 3 blocks (64 prompt and 4 further positions); 16 hold five.
  for (uint64_t key = 2; key <= 6; ++key) {
    ASSERT_TRUE(Submit(key, static_cast<char>('a' + key)).ok());
    const auto grant = Reserve(static_cast<char>('a' + key));
    ASSERT_TRUE(grant.ok());
    grants.push_back(*grant);
  }
  std::promise<absl::StatusOr<transport::Grant>> promise;
  auto future = promise.get_future();
  receiver_.Reserve({.handoff_key = std::string(16, 'a'), .prompt_tokens = 64},
                    [&](absl::StatusOr<transport::Grant> grant) { promise.set_value(grant); });
  EXPECT_EQ(future.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  receiver_.Aborted(grants[0].landing_id, absl::UnavailableError("gone"));
  ASSERT_EQ(future.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_TRUE(future.get().ok());
}

TEST_F(HandoffReceiverTest, HandoffThatNeverComesIsGivenUp) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  receiver_.Expire(absl::Now() + absl::Seconds(10));
  EXPECT_FALSE(listener_.AwaitEnd(Ref(1), absl::Milliseconds(50)).has_value());
  receiver_.Expire(absl::Now() + absl::Seconds(30));
  const auto end = listener_.AwaitEnd(Ref(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(HandoffReceiverTest, StopGivesReservationsBack) {
  ASSERT_TRUE(Submit(1, 'a').ok());
  ASSERT_TRUE(Reserve('a').ok());
  receiver_.Stop();
  const auto end = listener_.AwaitEnd(Ref(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(AwaitAllFree(*engine_));
}

}  // namespace
}  // namespace baton::decode_worker
