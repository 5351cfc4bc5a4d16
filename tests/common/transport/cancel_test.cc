// SPDX-License-Identifier: Apache-2.0
// Hand-offs that end early: by the sender, by the receiver, by a deadline, or
// because one of them goes away. Every callback runs once, every grant is
// given back once, and no byte lands afterwards.
#include <gtest/gtest.h>

#include <thread>

#include "tests/common/transport/process_state.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

class Cancel : public TransportTest {
 protected:
  // Blocks of 640 KiB, of which many do not fit into ring or socket at once.
  void UseBigBlocks() {
    UseLargeBlocks();
    sender_options_.ring_bytes = 1 << 20;
  }

  void ExpectWorking() {
    PromptKv prompt(layout_, 3, 99);
    EXPECT_EQ(HandOver(1000, prompt), absl::OkStatus());
    EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->id_of(Key(1000)))));
  }
};

TEST_P(Cancel, BeforeTheGrantGivesTheLateGrantBack) {
  Start();
  landing_->Hold(true);
  PromptKv prompt(layout_, 2, 1);
  Outcome granted, put, commit;
  const auto writer = Open(1, prompt.tokens(), granted.done());
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  writer->Commit({}, commit.done());
  ASSERT_TRUE(landing_->WaitAsked(1));
  writer->Abort(absl::CancelledError("client left"));
  for (Outcome* outcome : {&granted, &put, &commit}) {
    EXPECT_EQ(outcome->Wait(), absl::CancelledError("client left"));
  }
  landing_->Hold(false);
  landing_->ReleaseHeld();
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1).code(), kCancelled);
  ExpectWorking();
}

TEST_P(Cancel, SenderThatGoesBeforeTheGrantGivesItBack) {
  Start();
  landing_->Hold(true);
  Outcome granted;
  auto writer = Open(1, 64, granted.done());
  ASSERT_TRUE(landing_->WaitAsked(1));
  sender_.reset();
  EXPECT_EQ(granted.Wait().code(), kUnavailable);
  landing_->ReleaseHeld();
  ASSERT_TRUE(landing_->WaitAborted(1));
}

TEST_P(Cancel, ReceiverThatGoesBeforeTheGrantGivesItBack) {
  Start();
  landing_->Hold(true);
  Outcome granted;
  const auto writer = Open(1, 64, granted.done());
  ASSERT_TRUE(landing_->WaitAsked(1));
  receiver_.reset();
  EXPECT_EQ(granted.Wait().code(), kUnavailable);
  landing_->ReleaseHeld();
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(Cancel, InTheMiddleOfAPutFreesTheSourcesAtOnce) {
  UseBigBlocks();
  Start();
  int cancelled = 0;
  for (int round = 0; round < 5; ++round) {
    auto prompt = std::make_unique<PromptKv>(layout_, 16, round);
    Outcome put;
    const auto writer = Open(round, prompt->tokens());
    writer->Put(prompt->all(), prompt->Sources(prompt->all()), put.done());
    ASSERT_TRUE(landing_->WaitGranted(round + 1));
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    writer->Abort(absl::CancelledError("client left"));
    const absl::Status ended = put.Wait();
    EXPECT_TRUE(ended.ok() || ended.code() == kCancelled) << ended;
    cancelled += ended.ok() ? 0 : 1;
    prompt.reset();  // a read of it from here on is a use after free
    ASSERT_TRUE(landing_->WaitAborted(round + 1));
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(landing_->committed(), 0u);
  ExpectWorking();
}

TEST_P(Cancel, BeforeTheCommitTellsTheReceiver) {
  Start();
  PromptKv prompt(layout_, 2, 1);
  Outcome put;
  const auto writer = Open(1, prompt.tokens());
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  EXPECT_EQ(put.Wait(), absl::OkStatus());
  writer->Abort(absl::CancelledError("client left"));
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1), absl::CancelledError("client left"));
  Outcome late_put, late_commit;
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), late_put.done());
  writer->Commit({}, late_commit.done());
  EXPECT_EQ(late_put.Wait().code(), kCancelled);
  EXPECT_EQ(late_commit.Wait().code(), kCancelled);
}

TEST_P(Cancel, WhileTheCommitIsDecidedLeavesTheBlocksWithTheLanding) {
  Start();
  landing_->HoldCommits(true);
  PromptKv prompt(layout_, 2, 1);
  Outcome commit;
  const auto writer = Open(1, prompt.tokens());
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  ASSERT_TRUE(landing_->WaitCommitted(1));
  writer->Abort(absl::CancelledError("client left"));
  EXPECT_EQ(commit.Wait().code(), kCancelled);
  landing_->HoldCommits(false);
  landing_->ReleaseCommits();
  ExpectWorking();
  EXPECT_EQ(landing_->aborted(), 0u);
}

TEST_P(Cancel, DestroyedWriterAborts) {
  Start();
  Outcome granted;
  auto writer = Open(1, 64, granted.done());
  ASSERT_EQ(granted.Wait(), absl::OkStatus());
  writer.reset();
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1).code(), kCancelled);
}

TEST_P(Cancel, WriterMayOutliveItsSender) {
  Start();
  Outcome granted;
  const auto writer = Open(1, 64, granted.done());
  ASSERT_EQ(granted.Wait(), absl::OkStatus());
  sender_.reset();
  PromptKv prompt(layout_, 2, 1);
  Outcome put, commit;
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  writer->Commit({}, commit.done());
  EXPECT_EQ(put.Wait().code(), kUnavailable);
  EXPECT_EQ(commit.Wait().code(), kUnavailable);
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1).code(), kUnavailable);
}

TEST_P(Cancel, DeadlineEndsAHandOffThatWaits) {
  Start();
  landing_->Hold(true);
  Outcome granted, commit;
  // Long enough to connect in, also where a sanitizer and other tests slow nccl down.
  const absl::Duration patience = absl::Milliseconds(BATON_SANITIZED ? 2000 : 250);
  const auto writer = Open(1, 64, granted.done(), absl::Now() + patience);
  writer->Commit({}, commit.done());
  ASSERT_TRUE(landing_->WaitAsked(1));
  EXPECT_EQ(granted.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(commit.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  landing_->ReleaseHeld();
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(Cancel, SlowPrefillKeepsItsLease) {
  receiver_options_.lease = absl::Milliseconds(300);
  Start();
  PromptKv prompt(layout_, 2, 1);
  Outcome granted, commit;
  const auto writer = Open(1, prompt.tokens(), granted.done());
  ASSERT_EQ(granted.Wait(), absl::OkStatus());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
}

// Found in the field: blocks of a cancelled hand-off were given to the next
// while the first sender still wrote into them.
TEST_P(Cancel, RevokedBlocksServeTheNextHandOffAtOnceAndNoLateByteLands) {
  UseBigBlocks();
  Start();
  for (int round = 0; round < 6; ++round) {
    PromptKv first(layout_, 12, 2 * round), second(layout_, 12, 2 * round + 1);
    Outcome put;
    landing_->ReuseBlocksOf(0);
    const auto writer = Open(2 * round, first.tokens());
    writer->Put(first.all(), first.Sources(first.all()), put.done());
    ASSERT_TRUE(landing_->WaitGranted(2 * round + 1));
    const uint64_t id = landing_->last_id();
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    receiver_->Revoke(id, absl::ResourceExhaustedError("blocks are needed"));
    ASSERT_TRUE(landing_->WaitAborted(round + 1));
    EXPECT_EQ(landing_->abort_reason(id).code(), absl::StatusCode::kResourceExhausted);

    landing_->ReuseBlocksOf(id);
    EXPECT_EQ(HandOver(2 * round + 1, second), absl::OkStatus());
    EXPECT_TRUE(put.Ready(kPatience));
    EXPECT_TRUE(second.Equals(landing_->blocks(id))) << "round " << round;
    Outcome commit;
    writer->Commit({}, commit.done());
    EXPECT_EQ(commit.Wait(), absl::ResourceExhaustedError("blocks are needed"));
  }
}

TEST_P(Cancel, RevokeAfterTheCommitChangesNothing) {
  Start();
  PromptKv prompt(layout_, 2, 1);
  ASSERT_EQ(HandOver(1, prompt), absl::OkStatus());
  receiver_->Revoke(1, absl::CancelledError("too late"));
  receiver_->Revoke(77, absl::CancelledError("never was"));
  ExpectWorking();
  EXPECT_EQ(landing_->aborted(), 0u);
}

TEST_P(Cancel, PutThatCannotBeMadeEndsTheHandOffOnBothSides) {
  Start();
  PromptKv prompt(layout_, 2, 1);
  const auto expect_refused = [&](uint64_t n, const PutRange& range, size_t drop) {
    Outcome put, commit;
    const auto writer = Open(n, prompt.tokens());
    ASSERT_TRUE(landing_->WaitGranted(n));
    auto sources = prompt.Sources(prompt.all());
    sources.spans.resize(sources.spans.size() - drop);
    writer->Put(range, std::move(sources), put.done());
    writer->Commit({}, commit.done());
    EXPECT_EQ(put.Wait().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(commit.Wait().code(), absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(landing_->WaitAborted(n));
  };
  expect_refused(1, {0, 5, 0, 2}, 1);
  expect_refused(2, {0, 6, 0, 2}, 0);
  expect_refused(3, {3, 2, 0, 2}, 0);
  expect_refused(4, {0, 5, 1, 3}, 0);  // beyond the prompt
  ExpectWorking();
}

TEST_P(Cancel, CommitWithoutAllSlicesIsRefused) {
  Start();
  PromptKv prompt(layout_, 2, 1);
  Outcome commit;
  const auto writer = Open(1, prompt.tokens());
  writer->Put({0, 4, 0, 2}, prompt.Sources({0, 4, 0, 2}), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->committed(), 0u);
}

TEST_P(Cancel, RestartedReceiverIsFoundByTheNextOpen) {
  Start();
  ExpectWorking();
  const std::string address = Address();
  Outcome granted, commit;
  const auto writer = Open(2, 64, granted.done());
  ASSERT_EQ(granted.Wait(), absl::OkStatus());
  writer->Commit({}, [](const absl::Status&) {});
  receiver_.reset();
  const auto refused =
      sender_->Open({{GetParam(), address}}, {Key(3), 64}, absl::InfiniteFuture(), commit.done());
  EXPECT_EQ(commit.Wait().code(), kUnavailable);
  // The same address again, as after a restart.
  if (address.front() != '/') receiver_options_.tcp_address = address;
  landing_ = std::make_unique<FakeLanding>(layout_);
  auto receiver = MakeReceiver(receiver_options_, layout_, landing_.get());
  ASSERT_TRUE(receiver.ok()) << receiver.status();
  receiver_ = *std::move(receiver);
  ExpectWorking();
}

// Found in the field: a receiver crashed when a restarted sender came back
// while the old endpoint was being torn down.
TEST_P(Cancel, SenderRestartedTwentyTimesUnderLoadLeavesNothingBehind) {
  Start();
  ExpectWorking();
  sender_.reset();
  const size_t fds = OpenFds(), threads = Threads();
  for (int round = 0; round < 20; ++round) {
    StartSender();
    PromptKv prompt(layout_, 6, round);
    std::vector<std::unique_ptr<KvWriter>> writers;
    std::vector<Outcome> commits(4);
    for (uint64_t i = 0; i < commits.size(); ++i) {
      writers.push_back(Open(10 * round + i, prompt.tokens()));
      writers[i]->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
      writers[i]->Commit({}, commits[i].done());
    }
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    sender_.reset();
    for (Outcome& commit : commits) {
      const absl::Status status = commit.Wait();
      EXPECT_TRUE(status.ok() || status.code() == kUnavailable) << status;
    }
  }
  StartSender();
  ExpectWorking();
  sender_.reset();
  EXPECT_TRUE(SettlesAt(OpenFds, fds));
  EXPECT_TRUE(SettlesAt(Threads, threads));
  EXPECT_TRUE(landing_->WaitAborted(landing_->granted() - landing_->committed()));
}

TEST_P(Cancel, ManyReconnectsKeepDescriptorsAndThreadsFlat) {
  sender_options_.ring_bytes = 64 << 10;
  Start();
  size_t fds = 0, threads = 0;
  // ucx opens devices each time; sanitizers look at each round, not at their number.
  const int rounds = BATON_SANITIZED || GetParam() == "ucx" ? 50 : 200;
  for (int round = 0; round < rounds; ++round) {
    Outcome granted;
    auto writer = Open(round, 64, granted.done());
    ASSERT_EQ(granted.Wait(), absl::OkStatus());
    writer.reset();
    sender_.reset();
    StartSender();
    if (round == 9) {
      ASSERT_TRUE(landing_->WaitAborted(10));
      fds = OpenFds();
      threads = Threads();
    }
  }
  EXPECT_TRUE(landing_->WaitAborted(rounds));
  EXPECT_TRUE(SettlesAt(OpenFds, fds));
  EXPECT_TRUE(SettlesAt(Threads, threads));
}

BATON_ALL_TRANSPORTS(Cancel);

}  // namespace
}  // namespace baton::transport
