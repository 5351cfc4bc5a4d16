// SPDX-License-Identifier: Apache-2.0
// The engine's side of a hand-off, call by call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

// A decode engine whose hand-offs are played by the test.
class LandingTest : public ::testing::Test {
 protected:
  using Blocks = absl::StatusOr<Engine::Reservation>;

  void Start(uint32_t blocks = 16) {
    engine_ = MakeEngine({}, PoolOf(blocks), &recorder_);
    engine_->SetReservationCancelled([this](SequenceRef ref) { cancelled_.set_value(ref); });
  }
  void TearDown() override {
    if (engine_ != nullptr) ExpectIdle(*engine_);
  }

  SequenceRef Expect(uint64_t key, size_t prompt = 40, uint32_t max_tokens = 10) {
    const auto spec = MakeSpec(key, std::vector<TokenId>(prompt, 1), max_tokens, Role::kDecode);
    engine_->Submit(spec);
    return spec.ref;
  }
  std::future<Blocks> Reserve(SequenceRef ref, uint32_t prompt_tokens = 40,
                              kv::KvOrigin origin = kv::KvOrigin::kOwn) {
    auto promise = std::make_shared<std::promise<Blocks>>();
    engine_->Reserve(ref, prompt_tokens, origin,
                     [promise](Blocks blocks) { promise->set_value(std::move(blocks)); });
    return promise->get_future();
  }
  absl::Status Activate(SequenceRef ref, const HandoffState& state = {.first_tokens = {0}}) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    engine_->Activate(ref, state, [promise](absl::Status status) { promise->set_value(status); });
    return promise->get_future().get();
  }
  StatusCode EndCode(SequenceRef ref) {
    EXPECT_TRUE(recorder_.WaitForEnd(ref));
    return recorder_.Of(ref).end.status.code();
  }

  Recorder recorder_;
  std::promise<SequenceRef> cancelled_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(LandingTest, ReservationGivesThePromptsBlocksAndHoldsOneForTheNextToken) {
  Start();
  const SequenceRef ref = Expect(1, 64, 100);  // 2 blocks of prompt, 6 in all
  const Blocks blocks = Reserve(ref, 64).get();
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->first_block, 0u);
  EXPECT_EQ(blocks->blocks.size(), 2u);
  ASSERT_TRUE(Eventually([&] { return engine_->load().kv_blocks_transfers == 2; }));
  EXPECT_EQ(engine_->load().kv_blocks_requests, 3u);
  engine_->ReleaseReservation(ref, absl::UnavailableError("the sender is gone"));
  EXPECT_EQ(EndCode(ref), StatusCode::kUnavailable);
}

TEST_F(LandingTest, WrongReservationsAreRefused) {
  Start();
  EXPECT_EQ(Reserve({1, 9}).get().status().code(), StatusCode::kNotFound);
  const SequenceRef ref = Expect(1);
  const Blocks wrong = Reserve(ref, 41).get();
  EXPECT_EQ(wrong.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("41 prompt tokens"));
  ASSERT_TRUE(Reserve(ref).get().ok());
  EXPECT_EQ(Reserve(ref).get().status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Activate(ref).ok());
  EXPECT_EQ(EndCode(ref), StatusCode::kOk);
  EXPECT_EQ(Reserve(ref).get().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Activate(ref).code(), StatusCode::kNotFound);
}

TEST_F(LandingTest, KvOfAnotherOriginIsNeitherKeptForOthersNorMixedWithTheirs) {
  Start();
  const auto cached_blocks = [&](uint64_t key, kv::KvOrigin origin) {
    const SequenceRef ref = Expect(key, 70, 2);
    const Blocks blocks = Reserve(ref, 70, origin).get();
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    EXPECT_TRUE(Activate(ref).ok());
    EXPECT_EQ(EndCode(ref), StatusCode::kOk);
    return blocks->first_block;
  };
  EXPECT_EQ(cached_blocks(1, kv::KvOrigin::kConverted), 0u);
  EXPECT_EQ(cached_blocks(2, kv::KvOrigin::kOwn), 0u);
  EXPECT_EQ(cached_blocks(3, kv::KvOrigin::kOwn), 2u);
  EXPECT_EQ(cached_blocks(4, kv::KvOrigin::kConverted), 0u);
}

TEST_F(LandingTest, ActivationWithoutReservationIsRefused) {
  Start();
  const SequenceRef ref = Expect(1);
  EXPECT_EQ(Activate(ref).code(), StatusCode::kNotFound);
  engine_->Cancel(ref, absl::CancelledError("x"));
  EXPECT_EQ(EndCode(ref), StatusCode::kCancelled);
}

TEST_F(LandingTest, StateThatCannotBeContinuedIsRefused) {
  Start();
  uint64_t key = 0;
  for (const HandoffState& state :
       {HandoffState{.first_tokens = {1000}}, HandoffState{.first_tokens = {5}, .drawn = 2},
        HandoffState{.first_tokens = {5, 6}}, HandoffState{},
        HandoffState{.drawn = 0, .search = {{{5, -1, -1}}, {}}}}) {
    const SequenceRef ref = Expect(++key);
    ASSERT_TRUE(Reserve(ref).get().ok());
    EXPECT_EQ(Activate(ref, state).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(EndCode(ref), StatusCode::kInvalidArgument);
  }
}

TEST_F(LandingTest, ReservationWaitsForBlocks) {
  Start(3);
  const SequenceRef first = Expect(1, 40, 50);  // 2 blocks, 3 later
  ASSERT_TRUE(Reserve(first).get().ok());
  const SequenceRef second = Expect(2, 40, 30);
  auto waiting = Reserve(second);
  EXPECT_TRUE(Eventually([&] { return engine_->load().waiting_sequences == 1; }));
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  engine_->ReleaseReservation(first, absl::UnavailableError("x"));
  EXPECT_TRUE(waiting.get().ok());
  ASSERT_TRUE(Activate(second).ok());
  EXPECT_EQ(EndCode(second), StatusCode::kOk);
  EXPECT_EQ(recorder_.Of(second).tokens.size(), 29u);
}

TEST_F(LandingTest, CancelWhileWaitingForBlocksRefusesTheReservation) {
  Start(3);
  const SequenceRef first = Expect(1, 40, 50);  // 2 blocks, 3 later
  ASSERT_TRUE(Reserve(first).get().ok());
  const SequenceRef second = Expect(2, 40, 30);
  auto waiting = Reserve(second);
  engine_->Cancel(second, absl::CancelledError("the client left"));
  const Blocks refused = waiting.get();
  EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("the client left"));
  EXPECT_EQ(EndCode(second), StatusCode::kCancelled);
  engine_->ReleaseReservation(first, absl::UnavailableError("x"));
}

// The writer may still be at it: blocks and end wait for its release.
TEST_F(LandingTest, CancelledReservationKeepsItsBlocksUntilTheWriterLetsGo) {
  for (bool late_commit : {false, true}) {
    cancelled_ = {};
    Start(5);
    const SequenceRef ref = Expect(1, 40, 100);
    ASSERT_TRUE(Reserve(ref).get().ok());
    engine_->Cancel(ref, absl::CancelledError("the client left"));
    EXPECT_EQ(cancelled_.get_future().get(), ref);
    EXPECT_FALSE(recorder_.WaitForEnd(ref, absl::Milliseconds(20)));
    const Load load = engine_->load();
    EXPECT_EQ(load.kv_blocks_transfers, 2u);
    EXPECT_EQ(load.kv_blocks_requests, 0u);
    EXPECT_EQ(load.kv_blocks_free, 3u) << "those of the output are free";
    if (late_commit) {
      EXPECT_EQ(Activate(ref).code(), StatusCode::kNotFound);
    } else {
      engine_->ReleaseReservation(ref, absl::AbortedError("revoked"));
    }
    EXPECT_EQ(EndCode(ref), StatusCode::kCancelled);
    EXPECT_EQ(recorder_.Of(ref).ends, 1u);
    ExpectIdle(*engine_);
    engine_.reset();
    recorder_.Forget();
  }
}

TEST_F(LandingTest, DeadlinePassesInEveryStateWithoutAnyStep) {
  Start();
  // Under sanitizers beside other tests the reservation alone may take that long.
  const absl::Duration patience = absl::Milliseconds(BATON_SANITIZED ? 600 : 60);
  const auto submit = [&](uint64_t key) {
    auto spec = MakeSpec(key, std::vector<TokenId>(40, 1), 10, Role::kDecode);
    spec.deadline = absl::Now() + patience;
    engine_->Submit(spec);
    return spec.ref;
  };
  const SequenceRef expected = submit(1);
  const SequenceRef reserved = submit(2);
  ASSERT_TRUE(Reserve(reserved).get().ok());
  const absl::Time start = absl::Now();
  EXPECT_EQ(EndCode(expected), StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - start, patience + absl::Milliseconds(340))
      << "not only at the idle wake-up";
  EXPECT_EQ(cancelled_.get_future().get(), reserved);
  engine_->ReleaseReservation(reserved, absl::AbortedError("revoked"));
  EXPECT_EQ(EndCode(reserved), StatusCode::kDeadlineExceeded);
}

TEST(Handoff, FailureEndsTheSequenceOnBothEndsWithItsStatus) {
  Pair pair({}, PoolOf(16), PoolOf(16));
  pair.sender.FailCommits(absl::UnavailableError("the decode worker is gone"));
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(50, 1), 10);
  pair.Submit(spec);
  ASSERT_TRUE(pair.prefill_heard.WaitForEnd(spec.ref));
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(pair.prefill_heard.Of(spec.ref).end.handed_off);
  EXPECT_EQ(pair.decode_heard.Of(spec.ref).end.status.code(), StatusCode::kUnavailable);
  pair.ExpectIdle();
}

TEST(Handoff, ReceiverThatDoesNotKnowTheSequenceEndsIt) {
  Pair pair({}, PoolOf(16), PoolOf(16));
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(50, 1), 10, Role::kPrefill);
  pair.prefill->Submit(spec);
  ASSERT_TRUE(pair.prefill_heard.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.status.code(), StatusCode::kNotFound);
  pair.ExpectIdle();
}

TEST(Handoff, DestructionWaitsForTheSenderToLetGo) {
  Pair pair({}, PoolOf(16), PoolOf(16));
  pair.sender.SetFrozen(true);
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(50, 1), 10);
  pair.Submit(spec);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().commits == 1; }));
  auto destruction = std::async(std::launch::async, [&pair] { pair.prefill.reset(); });
  EXPECT_EQ(destruction.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).ends, 0u);
  pair.sender.SetFrozen(false);
  destruction.get();
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).ends, 1u);
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.status.code(), StatusCode::kCancelled);
}

TEST(Handoff, EndOfAHandoffThatIsNotOpenIsIgnored) {
  Pair pair({}, PoolOf(16), PoolOf(16));
  pair.prefill->HandoffDone({1, 5}, absl::OkStatus(), "x", 1);
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(50, 1), 10);
  pair.Submit(spec);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  pair.prefill->HandoffDone(spec.ref, absl::OkStatus(), "x", 1);
  pair.ExpectIdle();
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).ends, 1u);
}

}  // namespace
}  // namespace baton::engine
