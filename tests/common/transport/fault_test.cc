// SPDX-License-Identifier: Apache-2.0
// Bad networks and misbehaving senders: a decode worker never takes a sequence
// over on KV that is not whole, and both sides end at once.
#include <gtest/gtest.h>

#include "common/transport/fault/fault_sender.h"
#include "tests/common/transport/tcp_proxy.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

// A sender whose connection goes through a proxy.
class BadNetwork : public TransportTest {
 protected:
  static constexpr uint32_t kBlocks = 6;

  absl::Status HandOverThrough(const TcpProxy& proxy, PromptKv& prompt,
                               absl::Duration patience = absl::Seconds(30)) {
    StartSender();
    const auto writer = sender_->Open({{"tcp", proxy.address()}}, {Key(1), prompt.tokens()},
                                      absl::Now() + patience, [](const absl::Status&) {});
    for (uint32_t l = 0; l < layout_.layers; ++l) {
      const PutRange range{l, l + 1, 0, prompt.count()};
      writer->Put(range, prompt.Sources(range), [](const absl::Status&) {});
    }
    Outcome commit;
    writer->Commit({}, commit.done());
    return commit.Wait();
  }

  // Bytes that a whole hand-off puts on the wire.
  uint64_t WireBytes() {
    TcpProxy proxy(Address(), {});
    PromptKv prompt(layout_, kBlocks, 1);
    EXPECT_EQ(HandOverThrough(proxy, prompt), absl::OkStatus());
    return proxy.passed();
  }
};

TEST_P(BadNetwork, ConnectionCutAnywhereEndsBothSides) {
  StartReceiver();
  const uint64_t whole = WireBytes();
  size_t grants_lost = 0;
  // In the hello, in the puts, before the last bytes, and in the commit.
  for (const uint64_t cut : {uint64_t{5}, uint64_t{400}, whole * 6 / 10, whole - 2000, whole - 1}) {
    const size_t granted = landing_->granted();
    TcpProxy::Plan plan;
    plan.cut_after = cut;
    TcpProxy proxy(Address(), plan);
    PromptKv prompt(layout_, kBlocks, 1);
    EXPECT_EQ(HandOverThrough(proxy, prompt).code(), absl::StatusCode::kUnavailable) << cut;
    grants_lost += landing_->granted() - granted;
    EXPECT_TRUE(landing_->WaitAborted(grants_lost)) << cut;
  }
  EXPECT_GE(grants_lost, 3u);
  EXPECT_EQ(landing_->committed(), 1u) << "only the one that measured";
}

TEST_P(BadNetwork, FlippedBitNeverCommitsOtherBytes) {
  StartReceiver();
  const uint64_t whole = WireBytes();
  int refused = 0;
  for (uint64_t i = 0; i < 24; ++i) {
    TcpProxy::Plan plan;
    plan.flip_bit_at = 20 + i * (whole - 21) / 24;
    TcpProxy proxy(Address(), plan);
    PromptKv prompt(layout_, kBlocks, 1);
    const size_t committed = landing_->committed();
    // A flip in a length or a name can make a peer wait for more: bounded by the deadline.
    const absl::Status status = HandOverThrough(proxy, prompt, absl::Milliseconds(1000));
    if (status.ok()) {
      EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->last_id()))) << plan.flip_bit_at;
    } else {
      EXPECT_EQ(landing_->committed(), committed) << plan.flip_bit_at;
      refused += status.code() == kFailedPrecondition ? 1 : 0;
    }
  }
  EXPECT_GE(refused, 12) << "most of the bytes are KV";
}

TEST_P(BadNetwork, FrozenConnectionEndsWithLeaseAndDeadline) {
  receiver_options_.lease = absl::Milliseconds(300);
  StartReceiver();
  const uint64_t whole = WireBytes();
  TcpProxy::Plan plan;
  plan.freeze_after = whole / 2;
  TcpProxy proxy(Address(), plan);
  PromptKv prompt(layout_, kBlocks, 1);
  EXPECT_EQ(HandOverThrough(proxy, prompt, absl::Milliseconds(600)).code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(2).code(), absl::StatusCode::kDeadlineExceeded);
}

INSTANTIATE_TEST_SUITE_P(Kv, BadNetwork, ::testing::Values("tcp"));

class FaultySender : public TransportTest {
 protected:
  void StartWith(const FaultPlan& plan) {
    UseLargeBlocks();
    Start();
    auto faulty = MakeFaultySender(std::move(sender_), plan);
    ASSERT_TRUE(faulty.ok()) << faulty.status();
    sender_ = *std::move(faulty);
  }

  struct Result {
    std::vector<absl::Status> puts;
    absl::Status commit;
  };
  // One put a block.
  Result Run(PromptKv& prompt) {
    const auto writer = Open(1, prompt.tokens());
    std::vector<Outcome> puts(prompt.count());
    Outcome commit;
    for (uint32_t b = 0; b < prompt.count(); ++b) {
      const PutRange range{0, layout_.layers, b, b + 1};
      writer->Put(range, prompt.Sources(range), puts[b].done());
    }
    writer->Commit({}, commit.done());
    Result result;
    result.commit = commit.Wait();
    writer->Abort(absl::CancelledError("over"));
    for (Outcome& put : puts) result.puts.push_back(put.Wait());
    return result;
  }
};

TEST_P(FaultySender, WithoutFaultsChangesNothing) {
  StartWith({});
  PromptKv prompt(layout_, 3, 1);
  EXPECT_EQ(Run(prompt).commit, absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
}

TEST_P(FaultySender, DelayedPutComesLateAndInOrder) {
  FaultPlan plan;
  plan.delay_put = 2;
  plan.delay = absl::Milliseconds(60);
  StartWith(plan);
  PromptKv prompt(layout_, 3, 1);
  const absl::Time begin = absl::Now();
  EXPECT_EQ(Run(prompt).commit, absl::OkStatus());
  EXPECT_GE(absl::Now() - begin, plan.delay);
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
}

TEST_P(FaultySender, AnyPutThatFailsFailsTheCommit) {
  for (const uint64_t k : {1, 2, 3}) {
    FaultPlan plan;
    plan.fail_put = k;
    StartWith(plan);
    PromptKv prompt(layout_, 3, 1);
    const Result result = Run(prompt);
    EXPECT_EQ(result.puts[k - 1], plan.failure);
    EXPECT_EQ(result.commit.code(), kFailedPrecondition);
    EXPECT_TRUE(landing_->WaitAborted(1));
  }
}

TEST_P(FaultySender, DroppedPutFailsTheCommitAndEndsWithTheWriter) {
  FaultPlan plan;
  plan.drop_put = 2;
  StartWith(plan);
  PromptKv prompt(layout_, 3, 1);
  const Result result = Run(prompt);
  EXPECT_EQ(result.puts[1].code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(result.commit.code(), kFailedPrecondition);
}

TEST_P(FaultySender, CorruptedOrTruncatedFrameNeverCommits) {
  for (const uint64_t k : {1, 2, 4}) {
    for (const bool corrupt : {false, true}) {
      FaultPlan plan;
      (corrupt ? plan.corrupt_frame : plan.truncate_frame) = k;
      StartWith(plan);
      PromptKv prompt(layout_, 4, k);
      const absl::Status commit = Run(prompt).commit;
      EXPECT_TRUE(commit.code() == kFailedPrecondition ||
                  (!corrupt && commit.code() == absl::StatusCode::kInvalidArgument))
          << commit;
      EXPECT_TRUE(landing_->WaitAborted(1));
      EXPECT_EQ(landing_->committed(), 0u);
    }
  }
}

TEST_P(FaultySender, KilledConnectionEndsTheHandOffAndTheNextOneWorks) {
  FaultPlan plan;
  plan.kill_after_bytes = 1 << 20;
  StartWith(plan);
  PromptKv prompt(layout_, 4, 1);
  EXPECT_EQ(Run(prompt).commit.code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HandOver(2, prompt), absl::OkStatus());
}

BATON_ALL_TRANSPORTS(FaultySender);

}  // namespace
}  // namespace baton::transport
