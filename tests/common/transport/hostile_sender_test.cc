// SPDX-License-Identifier: Apache-2.0
// What a receiver does with senders that lie, are late, or speak nonsense:
// refuses, tells why, and never touches memory it should not.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <random>

#include "common/base/crc32c.h"
#include "common/transport/slice_digest.h"
#include "tests/common/transport/process_state.h"
#include "tests/common/transport/raw_sender.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

using baton::v1::HandoffFrame;

class HostileSender : public TransportTest {
 protected:
  void SetUp() override { StartReceiver(); }

  Endpoint At() const { return {GetParam(), Address()}; }

  // The landing's memory still holds what it was filled with.
  bool Untouched(uint64_t landing_id) {
    for (const std::byte* block : landing_->blocks(landing_id)) {
      for (size_t i = 0; i < layout_.BlockBytes(); ++i) {
        if (block[i] != std::byte{0xee}) return false;
      }
    }
    return true;
  }

  // Sends one Put that `spoil` has changed; the receiver must refuse it with
  // `code`, leave the memory alone and end the hand-off.
  void ExpectPutRefused(absl::StatusCode code, const std::function<void(baton::v1::Put&)>& spoil) {
    RawSender sender(At());
    ASSERT_TRUE(sender.Greet(layout_));
    const auto granted = sender.Reserve(1, Key(1), 3 * kv::kBlockTokens);
    const uint64_t id = landing_->last_id();
    const size_t aborted = landing_->aborted();
    const std::string bytes(2 * layout_.LayerBytes(), 'x');
    baton::v1::Put put = sender.MakePut(granted, {1, 3, 1, 2}, bytes);
    spoil(put);
    sender.SendPut(put, bytes);
    const HandoffFrame refused = sender.ReadUntil(HandoffFrame::kRefused);
    EXPECT_EQ(refused.refused().code(), static_cast<int>(code)) << refused.DebugString();
    ASSERT_TRUE(landing_->WaitAborted(aborted + 1));
    EXPECT_EQ(landing_->abort_reason(id).code(), code);
    EXPECT_TRUE(Untouched(id)) << put.DebugString();
  }

  // Sends a commit after one right Put of the whole prompt; returns the refusal.
  baton::v1::Refused RefusalOfCommit(const std::function<void(baton::v1::Commit&)>& spoil) {
    RawSender sender(At());
    EXPECT_TRUE(sender.Greet(layout_));
    const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
    const std::string bytes(layout_.BlockBytes(), 'x');
    sender.SendPut(sender.MakePut(granted, {0, layout_.layers, 0, 1}, bytes), bytes);
    sender.AwaitConsumed();
    HandoffFrame frame;
    baton::v1::Commit& commit = *frame.mutable_commit();
    commit.set_transfer(1);
    commit.set_ticket_id(granted.ticket_id());
    commit.set_epoch(granted.epoch());
    commit.set_slices(layout_.layers);
    commit.set_prompt_tokens(kv::kBlockTokens);
    commit.mutable_state()->set_version(kSamplingStateVersion);
    const std::span<const std::byte> slice(reinterpret_cast<const std::byte*>(bytes.data()),
                                           layout_.LayerBytes());
    uint64_t digest = 0;
    for (uint32_t l = 0; l < layout_.layers; ++l) digest ^= DigestShare(0, l, Crc32c(slice));
    commit.set_digest(digest);
    spoil(commit);
    sender.Send(frame);
    HandoffFrame answer = sender.Read();
    while (answer.has_consumed()) answer = sender.Read();
    return answer.refused();
  }
};

// What only shm has: a ring and descriptors.
class HostileShmSender : public HostileSender {};

TEST_P(HostileSender, RightPutsAndCommitOfTheRawSenderAreTaken) {
  EXPECT_EQ(RefusalOfCommit([](auto&) {}).code(), 0);
  EXPECT_TRUE(landing_->WaitCommitted(1));
}

TEST_P(HostileSender, StaleTicketOrEpochIsRefused) {
  const auto code = absl::StatusCode::kFailedPrecondition;
  ExpectPutRefused(code, [](auto& put) { put.set_ticket_id(std::string(16, 'a')); });
  ExpectPutRefused(code, [](auto& put) { put.set_ticket_id(""); });
  ExpectPutRefused(code, [](auto& put) { put.set_epoch(put.epoch() + 1); });
  ExpectPutRefused(code, [](auto& put) { put.set_epoch(0); });
}

TEST_P(HostileSender, RangeThatIsNotTheTicketsIsRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectPutRefused(code, [](auto& put) { put.set_block_end(4); });
  ExpectPutRefused(code, [](auto& put) { put.set_block_end(0xffffffff); });
  ExpectPutRefused(code, [](auto& put) { put.set_block_begin(2); });
  ExpectPutRefused(code, [](auto& put) { put.set_layer_end(6); });
  ExpectPutRefused(code, [](auto& put) { put.set_layer_begin(3); });
  ExpectPutRefused(code, [](auto& put) { put.set_layer_end(0xffffffff); });
  ExpectPutRefused(code, [](auto& put) {
    put.set_block_begin(0xfffffffe);
    put.set_block_end(0xffffffff);
  });
  // The receiver has block 0 cached: nobody writes there.
  landing_->SkipBlocks(1);
  ExpectPutRefused(code, [](auto& put) {
    put.set_block_begin(0);
    put.set_block_end(1);
  });
}

TEST_P(HostileSender, SizeThatIsNotTheRangesIsRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectPutRefused(code, [](auto& put) { put.set_bytes(put.bytes() + 1); });
  ExpectPutRefused(code, [](auto& put) { put.set_bytes(0); });
  ExpectPutRefused(code, [](auto& put) { put.set_bytes(~uint64_t{0}); });
  // Bytes of a raw sender of nccl go behind their frames; its ring has nccl_test.cc, and
  // what else a put of cuda_ipc may name has ipc_test.cc.
  if (GetParam() == "tcp" || GetParam() == "nccl" || GetParam() == "cuda_ipc") return;
  ExpectPutRefused(code, [](auto& put) { put.set_ring_offset(RawSender::kRingBytes); });
  ExpectPutRefused(code, [](auto& put) { put.set_ring_offset(~uint64_t{0} - 100); });
}

TEST_P(HostileSender, PutForNoTransferIsRefusedAndTheConnectionGoesOn) {
  RawSender sender(At());
  ASSERT_TRUE(sender.Greet(layout_));
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  const std::string bytes(layout_.BlockBytes(), 'x');
  baton::v1::Put put = sender.MakePut(granted, {0, 5, 0, 1}, bytes);
  put.set_transfer(2);
  sender.SendPut(put, bytes);
  const HandoffFrame refused = sender.ReadUntil(HandoffFrame::kRefused);
  EXPECT_EQ(refused.refused().transfer(), 2u);
  EXPECT_TRUE(Untouched(1));
  sender.Send(HandoffFrame(sender.Hello(layout_)));  // now break it
  EXPECT_TRUE(sender.ReadsEnd());
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(HostileSender, WrongChecksumEndsTheHandOff) {
  RawSender sender(At());
  ASSERT_TRUE(sender.Greet(layout_));
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  const std::string bytes(layout_.BlockBytes(), 'x');
  baton::v1::Put put = sender.MakePut(granted, {0, 5, 0, 1}, bytes);
  put.set_crc32c(put.crc32c() ^ 1);
  sender.SendPut(put, bytes);
  EXPECT_EQ(sender.ReadUntil(HandoffFrame::kRefused).refused().code(),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(HostileSender, SliceThatComesAgainWithOtherBytesIsNeverWritten) {
  RawSender sender(At());
  ASSERT_TRUE(sender.Greet(layout_));
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  const std::string first(layout_.BlockBytes(), 'x'), second(layout_.BlockBytes(), 'y');
  sender.SendPut(sender.MakePut(granted, {0, 5, 0, 1}, first), first);
  if (GetParam() != "tcp") sender.ReadUntil(HandoffFrame::kConsumed);
  sender.SendPut(sender.MakePut(granted, {0, 5, 0, 1}, second), second);
  EXPECT_EQ(sender.ReadUntil(HandoffFrame::kRefused).refused().code(),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(landing_->blocks(1)[0][0], static_cast<std::byte>('x'));
  EXPECT_EQ(landing_->blocks(1)[0][layout_.BlockBytes() - 1], static_cast<std::byte>('x'));
}

TEST_P(HostileSender, CommitIsRefusedUnlessEverythingFits) {
  const auto refused_with = [&](auto spoil) { return RefusalOfCommit(spoil).message(); };
  EXPECT_NE(refused_with([](auto& c) { c.set_slices(4); }).find("missing"), std::string::npos);
  EXPECT_NE(refused_with([](auto& c) { c.set_digest(c.digest() ^ 1); }).find("digest"),
            std::string::npos);
  EXPECT_NE(refused_with([](auto& c) { c.set_prompt_tokens(31); }).find("31"), std::string::npos);
  EXPECT_NE(refused_with([](auto& c) { c.mutable_state()->set_version(3); }).find("version 3"),
            std::string::npos);
  EXPECT_NE(refused_with([](auto& c) { c.set_ticket_id("old"); }).find("stale"), std::string::npos);
  EXPECT_NE(refused_with([](auto& c) { c.set_epoch(99); }).find("stale"), std::string::npos);
  EXPECT_NE(refused_with([](auto& c) { c.set_transfer(9); }).find("stale"), std::string::npos);
  EXPECT_EQ(landing_->committed(), 0u);
  EXPECT_TRUE(landing_->WaitAborted(7));
}

TEST_P(HostileSender, SilentSenderLosesItsTicketWithTheLease) {
  receiver_.reset();
  receiver_options_.lease = absl::Milliseconds(60);
  StartReceiver();
  RawSender sender(At());
  ASSERT_TRUE(sender.Greet(layout_));
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  EXPECT_EQ(granted.lease_ms(), 60u);
  EXPECT_EQ(sender.ReadUntil(HandoffFrame::kRefused).refused().code(),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1).code(), absl::StatusCode::kDeadlineExceeded);
  // What it meant to send comes now.
  const std::string bytes(layout_.BlockBytes(), 'x');
  sender.SendPut(sender.MakePut(granted, {0, 5, 0, 1}, bytes), bytes);
  EXPECT_TRUE(sender.ReadUntil(HandoffFrame::kRefused).has_refused());
  EXPECT_TRUE(Untouched(1));
}

TEST_P(HostileSender, NewIncarnationFencesTheOldOne) {
  RawSender old_life(At());
  ASSERT_TRUE(old_life.Greet(layout_, 1));
  const auto granted = old_life.Reserve(1, Key(1), kv::kBlockTokens);
  RawSender new_life(At());
  ASSERT_TRUE(new_life.Greet(layout_, 2));
  ASSERT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->abort_reason(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(old_life.ReadsEnd());
  // The old ticket is worth nothing on the new connection.
  const auto fresh = new_life.Reserve(1, Key(2), kv::kBlockTokens);
  EXPECT_GT(fresh.epoch(), granted.epoch());
  const std::string bytes(layout_.BlockBytes(), 'x');
  new_life.SendPut(new_life.MakePut(granted, {0, 5, 0, 1}, bytes), bytes);
  EXPECT_TRUE(new_life.ReadUntil(HandoffFrame::kRefused).has_refused());
  EXPECT_TRUE(Untouched(1));
  EXPECT_TRUE(Untouched(2));
}

TEST_P(HostileSender, NonsenseClosesTheConnectionAndNothingElse) {
  HandoffFrame reserve, welcome;
  reserve.mutable_reserve()->set_transfer(1);
  welcome.mutable_welcome();
  std::string huge_message = EncodeFrame(reserve), huge_payload = huge_message;
  huge_message[7] = '\x7f';
  huge_payload[11] = '\x7f';
  std::string unknown_kind = EncodeFrame(reserve);
  unknown_kind[kFrameHeaderBytes] = '\x7a';  // field 15, which no frame has
  const std::vector<std::string> nonsense = {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                                             std::string(100'000, '\0'),
                                             huge_message,
                                             huge_payload,
                                             unknown_kind,
                                             EncodeFrame(HandoffFrame()),
                                             EncodeFrame(welcome)};
  for (size_t i = 0; i < nonsense.size(); ++i) {
    for (const bool greeted : {false, true}) {
      RawSender sender(At());
      if (greeted) {
        ASSERT_TRUE(sender.Greet(layout_));
      }
      sender.SendBytes(nonsense[i]);
      EXPECT_TRUE(sender.ReadsEnd()) << "case " << i;
    }
  }
  RawSender early(At());
  early.Send(reserve);
  EXPECT_TRUE(early.ReadsEnd()) << "a reserve before the hello";
  StartSender();
  PromptKv prompt(layout_, 3, 1);
  EXPECT_EQ(HandOver(1, prompt), absl::OkStatus());
}

TEST_P(HostileSender, RandomlySpoiledStreamsNeverCrashOrCommitWrongBytes) {
  std::mt19937 random(11);
  // A connection of ucx takes its time, and frames are frames.
  const int rounds = GetParam() == "ucx" ? 20 : 150;
  for (int round = 0; round < rounds; ++round) {
    RawSender sender(At());
    HandoffFrame put_frame, commit_frame;
    const std::string bytes(layout_.BlockBytes(), 'x');
    *put_frame.mutable_put() = sender.MakePut({}, {0, 5, 0, 1}, bytes);
    put_frame.mutable_put()->set_transfer(1);
    commit_frame.mutable_commit()->set_transfer(1);
    HandoffFrame reserve;
    reserve.mutable_reserve()->set_transfer(1);
    reserve.mutable_reserve()->set_prompt_tokens(32);
    std::string stream = EncodeFrame(reserve) + EncodeFrame(put_frame) + EncodeFrame(commit_frame);
    const int flips = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < flips; ++i) stream[random() % stream.size()] ^= 1 << (random() % 8);
    ASSERT_TRUE(sender.Greet(layout_, 7));
    sender.SendBytes(stream);
  }
  EXPECT_EQ(landing_->committed(), 0u);
  StartSender();
  PromptKv prompt(layout_, 3, 1);
  EXPECT_EQ(HandOver(1, prompt), absl::OkStatus());
}

TEST_P(HostileShmSender, RingThatIsNotSealedMemoryOfItsSizeIsRefused) {
  const auto refused = [&](int fd, uint64_t claimed) {
    RawSender sender(At());
    HandoffFrame hello = sender.Hello(layout_);
    hello.mutable_hello()->set_ring_bytes(claimed);
    sender.SendBytes(EncodeFrame(hello), fd);
    return sender.Read().has_refused();
  };
  UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_TRUE(refused(unsealed.get(), 4096));
  EXPECT_TRUE(refused(-1, 4096)) << "no descriptor at all";
  EXPECT_TRUE(refused(STDIN_FILENO, 4096)) << "not memory";
  const Ring ring = Ring::Make(8192).value();
  EXPECT_TRUE(refused(ring.fd(), 4096)) << "another size";
  EXPECT_TRUE(refused(ring.fd(), 0));
  EXPECT_TRUE(refused(ring.fd(), uint64_t{1} << 40));
  EXPECT_FALSE(refused(ring.fd(), 8192));
}

TEST_P(HostileShmSender, DescriptorsNobodyAskedForAreClosed) {
  const size_t before = OpenFds();
  for (int i = 0; i < 20; ++i) {
    RawSender sender(At());
    ASSERT_TRUE(sender.Greet(layout_));
    HandoffFrame reserve;
    reserve.mutable_reserve()->set_transfer(1);
    sender.SendBytes(EncodeFrame(reserve), STDIN_FILENO);
    EXPECT_TRUE(sender.ReadsEnd());
  }
  EXPECT_TRUE(SettlesAt(OpenFds, before));
}

TEST_P(HostileSender, TicketsAndConnectionsHaveALimit) {
  receiver_.reset();
  receiver_options_.max_open_tickets = 2;
  receiver_options_.max_connections = 2;
  StartReceiver();
  landing_->Hold(true);
  RawSender one(At());
  ASSERT_TRUE(one.Greet(layout_));
  for (uint64_t transfer = 1; transfer <= 3; ++transfer) {
    HandoffFrame frame;
    frame.mutable_reserve()->set_transfer(transfer);
    one.Send(frame);
    // Giving up does not make room while the landing still works on it.
    if (transfer < 3) {
      HandoffFrame abort;
      abort.mutable_abort()->set_transfer(transfer);
      one.Send(abort);
    }
  }
  const HandoffFrame refused = one.ReadUntil(HandoffFrame::kRefused);
  EXPECT_EQ(refused.refused().transfer(), 3u);
  EXPECT_EQ(refused.refused().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  landing_->ReleaseHeld();
  ASSERT_TRUE(landing_->WaitAborted(2)) << "grants that came too late are given back";
  landing_->Hold(false);
  EXPECT_EQ(one.Reserve(4, Key(4), 32).transfer(), 4u) << "and make room";

  RawSender two(At());
  ASSERT_TRUE(two.Greet(layout_));
  RawSender three(At());
  EXPECT_TRUE(three.ReadsEnd());
}

BATON_ALL_TRANSPORTS(HostileSender);
INSTANTIATE_TEST_SUITE_P(Kv, HostileShmSender, ::testing::Values("shm"));

}  // namespace
}  // namespace baton::transport
