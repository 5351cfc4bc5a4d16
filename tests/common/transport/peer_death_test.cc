// SPDX-License-Identifier: Apache-2.0
// Workers that are killed, or frozen, at several moments of a hand-off.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/common/transport/child_process.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

// The survivor must know within a second.
constexpr absl::Duration kAtOnce = absl::Seconds(1);
constexpr uint32_t kBlocks = 8;

class PeerDeath : public TransportTest {
 protected:
  PeerDeath() {
    UseLargeBlocks();
    sender_options_.ring_bytes = 1 << 20;
  }

  // The child's life as a sender: reads the receiver's address, opens a hand-off
  // and goes as far as `puts` of the prompt's blocks; then says so and stays.
  void SenderLife(uint32_t puts) {
    const std::string address = to_child_.Read();
    StartSender();
    PromptKv prompt(layout_, kBlocks, 1);
    Outcome granted, put;
    const auto writer = sender_->Open({{GetParam(), address}}, {Key(1), prompt.tokens()},
                                      absl::InfiniteFuture(), granted.done());
    if (puts > 0) {
      const PutRange range{0, layout_.layers, 0, puts};
      writer->Put(range, prompt.Sources(range), put.done());
      put.Ready(kPatience);
    }
    from_child_.Write("ready");
    // Puts without end: killed in the middle of one.
    while (puts > 0) {
      const PutRange all = prompt.all();
      Outcome more;
      writer->Put(all, prompt.Sources(all), more.done());
      more.Ready(kPatience);
    }
    pause();
  }

  // The child's life as a receiver, which holds its answers as told.
  void ReceiverLife(bool hold_grants, bool hold_commits) {
    StartReceiver();
    landing_->Hold(hold_grants);
    landing_->HoldCommits(hold_commits);
    from_child_.Write(Address());
    landing_->WaitAsked(1);
    from_child_.Write("asked");
    if (hold_commits) {
      landing_->WaitCommitted(1);
      from_child_.Write("committing");
    }
    pause();
  }

  void ExpectAbortedAtOnce(const std::function<void()>& act, absl::StatusCode code) {
    const absl::Time begin = absl::Now();
    act();
    ASSERT_TRUE(landing_->WaitAborted(1));
    EXPECT_LT(absl::Now() - begin, kAtOnce);
    EXPECT_EQ(landing_->abort_reason(1).code(), code);
  }

  void ExpectWorking() {
    StartSender();
    PromptKv prompt(layout_, 2, 7);
    EXPECT_EQ(HandOver(1000, prompt), absl::OkStatus());
    EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->id_of(Key(1000)))));
  }

  LinePipe to_child_, from_child_;
};

TEST_P(PeerDeath, SenderKilledAfterTheGrant) {
  ChildProcess child([this] { SenderLife(0); });
  StartReceiver();
  to_child_.Write(Address());
  ASSERT_EQ(from_child_.Read(), "ready");
  ASSERT_TRUE(landing_->WaitGranted(1));
  ExpectAbortedAtOnce([&] { child.Kill(); }, absl::StatusCode::kUnavailable);
  ExpectWorking();
}

TEST_P(PeerDeath, SenderKilledBeforeTheGrant) {
  ChildProcess child([this] { SenderLife(0); });
  StartReceiver();
  landing_->Hold(true);
  to_child_.Write(Address());
  ASSERT_TRUE(landing_->WaitAsked(1));
  child.Kill();
  landing_->Hold(false);
  ExpectWorking();
  EXPECT_EQ(landing_->aborted(), 0u);
  landing_->ReleaseHeld();
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(PeerDeath, SenderKilledInTheMiddleOfAPut) {
  ChildProcess child([this] { SenderLife(kBlocks / 2); });
  StartReceiver();
  to_child_.Write(Address());
  ASSERT_EQ(from_child_.Read(), "ready");
  ExpectAbortedAtOnce([&] { child.Kill(); }, absl::StatusCode::kUnavailable);
  EXPECT_EQ(landing_->committed(), 0u);
  ExpectWorking();
}

TEST_P(PeerDeath, FrozenSenderLosesItsLease) {
  ChildProcess child([this] { SenderLife(1); });
  receiver_options_.lease = absl::Milliseconds(300);
  StartReceiver();
  to_child_.Write(Address());
  ASSERT_EQ(from_child_.Read(), "ready");
  ExpectAbortedAtOnce([&] { child.Stop(); }, absl::StatusCode::kDeadlineExceeded);
  landing_->ReuseBlocksOf(1);
  StartSender();
  PromptKv prompt(layout_, kBlocks, 7);
  EXPECT_EQ(HandOver(1000, prompt), absl::OkStatus());
  // It wakes up and goes on putting.
  child.Signal(SIGCONT);
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
}

class ReceiverDeath : public PeerDeath {
 protected:
  void ExpectUnavailableAtOnce(ChildProcess& child, std::vector<Outcome*> outcomes) {
    const absl::Time begin = absl::Now();
    child.Kill();
    for (Outcome* outcome : outcomes) {
      EXPECT_EQ(outcome->Wait().code(), absl::StatusCode::kUnavailable);
    }
    EXPECT_LT(absl::Now() - begin, kAtOnce);
  }

  std::unique_ptr<KvWriter> OpenTo(const std::string& address, PromptKv& prompt, Outcome& granted) {
    return sender_->Open({{GetParam(), address}}, {Key(1), prompt.tokens()}, absl::InfiniteFuture(),
                         granted.done());
  }
};

TEST_P(ReceiverDeath, BeforeTheGrant) {
  ChildProcess child([this] { ReceiverLife(true, false); });
  const std::string address = from_child_.Read();
  StartSender();
  PromptKv prompt(layout_, kBlocks, 1);
  Outcome granted, put, commit;
  const auto writer = OpenTo(address, prompt, granted);
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  writer->Commit({}, commit.done());
  ASSERT_EQ(from_child_.Read(), "asked");
  ExpectUnavailableAtOnce(child, {&granted, &put, &commit});
}

TEST_P(ReceiverDeath, WhileItIsStoppedInTheMiddleOfAPut) {
  ChildProcess child([this] { ReceiverLife(false, false); });
  const std::string address = from_child_.Read();
  StartSender();
  PromptKv prompt(layout_, kBlocks, 1);
  Outcome granted, put, commit;
  const auto writer = OpenTo(address, prompt, granted);
  ASSERT_EQ(granted.Wait(), absl::OkStatus());
  child.Stop();  // so that it cannot be through before the kill
  const PutRange all = prompt.all();
  for (int i = 0; i < 4; ++i) {
    writer->Put(all, prompt.Sources(all), [](const absl::Status&) {});
  }
  writer->Put(all, prompt.Sources(all), put.done());
  writer->Commit({}, commit.done());
  EXPECT_FALSE(put.Ready(absl::Milliseconds(30))) << "back-pressure: nothing takes the bytes";
  ExpectUnavailableAtOnce(child, {&put, &commit});
}

TEST_P(ReceiverDeath, WhileTheCommitIsDecided) {
  ChildProcess child([this] { ReceiverLife(false, true); });
  const std::string address = from_child_.Read();
  StartSender();
  PromptKv prompt(layout_, kBlocks, 1);
  Outcome granted, commit;
  const auto writer = OpenTo(address, prompt, granted);
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  ASSERT_EQ(from_child_.Read(), "asked");
  ASSERT_EQ(from_child_.Read(), "committing");
  ExpectUnavailableAtOnce(child, {&commit});
  // Its successor takes over the dead one's address (a path: the file it left).
  StartReceiver(address.front() == '/' ? "127.0.0.1:0" : address);
  StartSender();
  PromptKv next(layout_, 2, 2);
  EXPECT_EQ(HandOver(2, next), absl::OkStatus());
}

BATON_ALL_TRANSPORTS(PeerDeath);
BATON_ALL_TRANSPORTS(ReceiverDeath);

}  // namespace
}  // namespace baton::transport
