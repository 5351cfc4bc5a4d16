// SPDX-License-Identifier: Apache-2.0
// What only the nccl transport has: communicators that fail, stall or begin anew
// beside a socket that lives. Over a stand-in for the library (tests/testing/fake_nccl).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "common/transport/fault/fault_sender.h"
#include "common/transport/nccl/nccl_pair.h"
#include "common/transport/nccl/nccl_runtime.h"
#include "tests/common/transport/raw_sender.h"
#include "tests/common/transport/transport_fixture.h"
#include "tests/testing/environment.h"
#include "tests/testing/fake_nccl/fake_nccl.h"

namespace baton::transport {
namespace {

using baton::v1::HandoffFrame;

template <typename Function>
Function* OfFake(const char* name) {
  void* const library = dlopen(BATON_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

constexpr absl::Duration kStall = absl::Milliseconds(BATON_SANITIZED ? 1000 : 200);

class Nccl : public TransportTest {
 protected:
  Nccl() {
    UseLargeBlocks();
    sender_options_.ring_bytes = 2 << 20;
    sender_options_.stall_limit = receiver_options_.stall_limit = kStall;
    sender_options_.rebuild_pause = absl::Milliseconds(20);
    SetFaults("");
  }
  ~Nccl() override { SetFaults(""); }

  static void SetFaults(const char* plan) { OfFake<FakeNcclSetFaults>(kFakeNcclSetFaults)(plan); }
  static uint64_t Moves() { return OfFake<FakeNcclMoves>(kFakeNcclMoves)(); }

  // Hands prompt `key` over and compares what has landed.
  void ExpectWhole(uint64_t key, uint32_t blocks = 8) {
    PromptKv prompt(layout_, blocks, key);
    ASSERT_EQ(HandOver(key, prompt), absl::OkStatus());
    EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->id_of(Key(key)))));
  }

  // Hands over until bytes go by NCCL again.
  bool MovesAgain(uint64_t first_key) {
    for (uint64_t key = first_key; key < first_key + 200; ++key) {
      const uint64_t before = Moves();
      ExpectWhole(key, 1);
      if (Moves() >= before + 2) return true;  // both ends
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }
};

TEST_P(Nccl, BytesGoByNcclAndNotByTheSocket) {
  Start();
  const uint64_t before = Moves();
  ExpectWhole(1);
  // A trial and a dozen puts or so, at both ends.
  EXPECT_GE(Moves() - before, 2 * 9);
}

struct Dying {
  const char* plan;
  bool slow;  // nothing but the stall tells
};

TEST_P(Nccl, DyingInTheMiddleTheHandOffGoesOnOverTheSocketWithTheSameBytes) {
  for (const Dying& dying : {Dying{"rank=0,pairs=1,hang-after=3", true},
                             {"rank=1,pairs=1,hang-after=3", true},
                             {"rank=0,pairs=1,stuck-after=4", true},
                             {"rank=1,pairs=1,stuck-after=2", true},
                             {"rank=0,pairs=1,error-after=3", false},
                             {"rank=1,pairs=1,error-after=5", false},
                             {"rank=0,pairs=1,refuse-after=2", false},
                             {"rank=1,pairs=1,refuse-after=4", false}}) {
    SCOPED_TRACE(dying.plan);
    Start();
    SetFaults(dying.plan);
    const absl::Time begin = absl::Now();
    ExpectWhole(1);
    const absl::Duration took = absl::Now() - begin;
    EXPECT_LT(took, kStall + absl::Seconds(BATON_SANITIZED ? 8 : 2));
    if (dying.slow) {
      EXPECT_GE(took, kStall);
    }
    // The pair is made anew, and moves bytes again.
    EXPECT_TRUE(MovesAgain(2));
    EXPECT_EQ(landing_->aborted(), 0u);
  }
}

TEST_P(Nccl, WithoutAnyThatWorksAHandOffStaysOnTheSocketAndAttemptsAreBounded) {
  Start();
  SetFaults("rank=1,error-after=2");
  // Longer than any pause before the next attempt.
  constexpr absl::Duration kPause = absl::Milliseconds(250);
  uint64_t key = 0;
  int unmoved = 0;
  for (const absl::Time end = absl::Now() + kPatience; unmoved < 3 && absl::Now() < end;) {
    const uint64_t before = Moves();
    ExpectWhole(++key, 4);
    absl::SleepFor(kPause);
    unmoved = Moves() == before ? unmoved + 1 : 0;
  }
  EXPECT_EQ(unmoved, 3) << "it gave up after a few";
}

TEST_P(Nccl, ThatDoesNotBeginIsPassedOverForTheNextTransport) {
  for (const char* plan : {"rank=0,init-hangs", "rank=1,init-hangs", "rank=0,init-fails",
                           "rank=1,init-fails", "rank=0,hang-after=0", "rank=1,stuck-after=0"}) {
    SCOPED_TRACE(plan);
    StartReceiver();
    sender_options_.transports = {"nccl", "tcp"};
    StartSenderKeepingTransports();
    SetFaults(plan);
    Outcome granted;
    const absl::Time begin = absl::Now();
    const auto writer = Open(1, 64, granted.done());
    ASSERT_EQ(granted.Wait(), absl::OkStatus());
    EXPECT_EQ(writer->transport(), "tcp");
    EXPECT_LT(absl::Now() - begin, 2 * kStall + absl::Seconds(2));
    ExpectWhole(2);
    SetFaults("");
  }
}

TEST_P(Nccl, LosingThePathAnywhereKeepsTheBytes) {
  for (const uint64_t after : {1, 700'000, 3'000'000}) {
    SCOPED_TRACE(after);
    Start();
    FaultPlan plan;
    plan.lose_path_after_bytes = after;
    sender_ = MakeFaultySender(std::move(sender_), plan).value();
    for (uint64_t key = 1; key <= 3; ++key) ExpectWhole(key);
  }
}

TEST_P(Nccl, OfAFrozenReceiverTheHandOffGoesOnOverTheSocketOnceItWakes) {
  ExpectWholeFromAFrozenReceiver();
}

TEST_P(Nccl, AHandOffOnACommunicatorThatHangsKeepsItsDeadlineAndBlocksComeBack) {
  sender_options_.stall_limit = receiver_options_.stall_limit = absl::Seconds(30);
  Start();
  SetFaults("rank=0,hang-after=3");
  PromptKv prompt(layout_, 8, 1);
  Outcome commit;
  const absl::Duration patience = absl::Milliseconds(400);
  const auto writer = Open(
      1, prompt.tokens(), [](const absl::Status&) {}, absl::Now() + patience);
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  const absl::Time begin = absl::Now();
  EXPECT_EQ(commit.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - begin, patience + absl::Seconds(2));
  EXPECT_TRUE(landing_->WaitAborted(1));
  landing_->ReuseBlocksOf(1);
}

// It is not supposed to, but a call into NCCL may hang: loops go on, and so do hand-offs.
TEST_P(Nccl, ACallThatDoesNotReturnHoldsNobodyUpBeyondTheStallLimits) {
  receiver_options_.tcp = true;
  Start();
  ExpectWhole(1, 1);
  ASSERT_TRUE(landing_->WaitCommitted(1));
  const absl::Duration blocked = 6 * kStall;
  sender_.reset();
  StartSender();
  SetFaults(
      absl::StrCat("rank=0,block-after=3,block-ms=", absl::ToInt64Milliseconds(blocked)).c_str());
  const absl::Time begin = absl::Now();
  PromptKv prompt(layout_, 8, 2);
  const auto writer = Open(2, prompt.tokens());
  Outcome commit;
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  SenderOptions plain = sender_options_;
  plain.sender_id = "prefill-2";
  plain.transports = {"tcp"};
  const auto beside = MakeSender(plain, layout_).value();
  Outcome granted;
  const auto other =
      beside->Open(receiver_->endpoints(), {Key(3), 64}, absl::InfiniteFuture(), granted.done());
  EXPECT_EQ(granted.Wait(kStall), absl::OkStatus()) << "the receiver's loop is free";
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_LT(absl::Now() - begin, blocked);
  EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->id_of(Key(2)))));
}

TEST_P(Nccl, CommunicatorsBeyondTheBoundGiveWayToTheNextTransport) {
  StartReceiver();
  sender_options_.transports = {"nccl", "tcp"};
  std::vector<std::unique_ptr<KvSender>> senders;
  std::vector<std::unique_ptr<KvWriter>> writers;
  std::vector<std::string> used;
  // Both ends are in this process, so a connection takes two places.
  for (uint32_t i = 0; i <= NcclRuntime::kMaxCommunicators / 2; ++i) {
    sender_options_.sender_id = absl::StrCat("prefill-", i);
    auto sender = MakeSender(sender_options_, layout_);
    ASSERT_TRUE(sender.ok()) << sender.status();
    Outcome granted;
    writers.push_back((*sender)->Open(receiver_->endpoints(), {Key(i), 64}, absl::InfiniteFuture(),
                                      granted.done()));
    senders.push_back(*std::move(sender));
    ASSERT_EQ(granted.Wait(), absl::OkStatus());
    used.push_back(writers.back()->transport());
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), "nccl"), NcclRuntime::kMaxCommunicators / 2);
  EXPECT_EQ(used.back(), "tcp");
}

TEST_P(Nccl, WithoutItsLibraryOneSentenceSaysSo) {
  landing_ = std::make_unique<FakeLanding>(layout_);
  ReceiverOptions options;
  options.tcp_address = "127.0.0.1:0";
  options.nccl = true;
  std::optional<EnvironmentSetting> missing(std::in_place, "BATON_NCCL_LIBRARY",
                                            "libno_such_nccl.so");
  const auto receiver = MakeReceiver(options, layout_, landing_.get());
  EXPECT_EQ(receiver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(receiver.status().message().find("nccl cannot be used"), absl::string_view::npos)
      << receiver.status();
  sender_options_.transports = {"nccl"};
  const auto sender = MakeSender(sender_options_, layout_);
  EXPECT_EQ(sender.status().code(), absl::StatusCode::kUnavailable) << sender.status();
  // Offered by default alone, a worker goes on without.
  for (const char* device : {"cpu", "cuda:0"}) {
    const std::vector<std::string> names = DefaultTransports(device);
    EXPECT_EQ(std::count(names.begin(), names.end(), "nccl"), 0) << device;
    EXPECT_EQ(names.back(), "tcp");
  }
  missing.reset();
  const std::vector<std::string> on_gpu = DefaultTransports("cuda:0");
  EXPECT_EQ(std::count(on_gpu.begin(), on_gpu.end(), "nccl"), 1);
  const std::vector<std::string> on_cpu = DefaultTransports("cpu");
  EXPECT_EQ(std::count(on_cpu.begin(), on_cpu.end(), "nccl"), 0);
}

class HostileNcclSender : public Nccl {
 protected:
  static HandoffFrame Path(uint32_t communicator, const std::string& id) {
    HandoffFrame frame;
    frame.mutable_nccl_path()->set_communicator(communicator);
    frame.mutable_nccl_path()->set_unique_id(id);
    return frame;
  }
  static HandoffFrame Expect(uint32_t communicator, uint64_t offset, uint64_t bytes) {
    HandoffFrame frame;
    frame.mutable_nccl_expect()->set_communicator(communicator);
    frame.mutable_nccl_expect()->set_ring_offset(offset);
    frame.mutable_nccl_expect()->set_bytes(bytes);
    return frame;
  }
};

TEST_P(HostileNcclSender, FramesThatNoSenderOfOursSendsEndTheConnection) {
  StartReceiver();
  const std::string id(kNcclIdBytes, 'i');
  const uint64_t ring = RawSender::kRingBytes;
  HandoffFrame ended;
  ended.mutable_nccl_path()->set_communicator(1);
  const std::vector<std::vector<HandoffFrame>> scripts = {
      {Path(1, "short")},
      {Path(1, std::string(4096, 'l'))},
      {Path(0, id)},
      {Path(0xffffffff, id)},
      {ended},
      {Expect(1, 0, 8)},
      {Path(1, id), Path(1, id)},
      {Path(1, id), Expect(2, 0, 8)},
      {Path(1, id), Expect(1, 0, 0)},
      {Path(1, id), Expect(1, 0, ring + 1)},
      {Path(1, id), Expect(1, ring, 1)},
      {Path(1, id), Expect(1, ~uint64_t{0}, 2)},
      {Path(1, id), Expect(1, 1, ~uint64_t{0})},
      {Path(1, id), Expect(1, 0, ring), Expect(1, 0, 1)}};
  for (const auto& script : scripts) {
    SCOPED_TRACE(script.back().DebugString());
    RawSender sender({GetParam(), Address()});
    ASSERT_TRUE(sender.Greet(layout_));
    for (const HandoffFrame& frame : script) sender.Send(frame);
    EXPECT_EQ(sender.ReadUntil(HandoffFrame::kRefused).refused().code(),
              static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_TRUE(sender.ReadsEnd());
  }
  StartSender();
  ExpectWhole(1, 2);
}

TEST_P(HostileNcclSender, AnIdThatNobodyMeetsAtAndBytesThatNeverComeAreGivenUpInTime) {
  StartReceiver();
  RawSender sender({GetParam(), Address()});
  ASSERT_TRUE(sender.Greet(layout_));
  const absl::Time begin = absl::Now();
  sender.Send(Path(1, std::string(kNcclIdBytes, 'n')));
  sender.Send(Expect(1, 0, 4096));
  const HandoffFrame lost = sender.ReadUntil(HandoffFrame::kNcclPath);
  EXPECT_EQ(lost.nccl_path().communicator(), 1u);
  EXPECT_NE(lost.nccl_path().lost(), "");
  EXPECT_LT(absl::Now() - begin, kStall + absl::Seconds(2));
  // The connection itself goes on, with bytes behind frames.
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  EXPECT_EQ(granted.block_count(), 1u);
}

TEST_P(HostileNcclSender, MoreAnnouncedThanSentEndsAtTheStallLimitAndThePutIsRefused) {
  StartReceiver();
  RawSender sender({GetParam(), Address()});
  ASSERT_TRUE(sender.Greet(layout_));
  // Joins, and sends the trial alone.
  const auto runtime = NcclRuntime::Get("cpu").value();
  const auto ring = std::make_shared<NcclHostRing>(runtime.get(), 1 << 16);
  const auto loop = EventLoop::Make("raw-nccl").value();
  std::promise<NcclUniqueId> named;
  NcclEvents events{[&](const NcclUniqueId& id) { named.set_value(id); }, [](std::byte*) {},
                    [](uint64_t) {}, [](const absl::Status&) {}, [](bool) {}};
  std::unique_ptr<NcclLine> line;
  loop->Post([&] {
    line = std::make_unique<NcclLine>(
        runtime, loop.get(),
        NcclPair::Plan{NcclRank::kSender, ring, absl::Seconds(30), runtime->TakePlace()}, events);
    line->StartNamed();
  });
  const NcclUniqueId id = named.get_future().get();
  sender.Send(Path(1, std::string(id.bytes, kNcclIdBytes)));
  EXPECT_EQ(sender.ReadUntil(HandoffFrame::kArrived).arrived().puts(), 1u) << "the trial";
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  sender.Send(Expect(1, 0, layout_.BlockBytes()));
  EXPECT_NE(sender.ReadUntil(HandoffFrame::kNcclPath).nccl_path().lost(), "");
  // Nor is a range beyond the ring looked at.
  for (const uint64_t offset : {uint64_t{RawSender::kRingBytes}, ~uint64_t{0} - 100}) {
    const auto other = sender.Reserve(2 + offset % 2, Key(2 + offset % 2), kv::kBlockTokens);
    HandoffFrame beyond;
    *beyond.mutable_put() =
        sender.MakePut(other, {0, layout_.layers, 0, 1}, std::string(layout_.BlockBytes(), 'x'));
    beyond.mutable_put()->set_ring_offset(offset);
    sender.Send(beyond);
    EXPECT_EQ(sender.ReadUntil(HandoffFrame::kRefused).refused().code(),
              static_cast<int>(absl::StatusCode::kInvalidArgument));
  }
  // What it says of them anyway does not have the checksum.
  HandoffFrame put;
  *put.mutable_put() =
      sender.MakePut(granted, {0, layout_.layers, 0, 1}, std::string(layout_.BlockBytes(), 'x'));
  sender.Send(put);
  EXPECT_EQ(sender.ReadUntil(HandoffFrame::kRefused).refused().code(),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(landing_->WaitAborted(1));
  loop->Stop([&] { line.reset(); });
}

INSTANTIATE_TEST_SUITE_P(Kv, Nccl, ::testing::Values("nccl"));
INSTANTIATE_TEST_SUITE_P(Kv, HostileNcclSender, ::testing::Values("nccl"));

}  // namespace
}  // namespace baton::transport
