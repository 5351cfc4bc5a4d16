// SPDX-License-Identifier: Apache-2.0
// What only cuda_ipc has: copies on the device that the receiver makes by itself, and
// that fail or do not end. On the emulated GPU (kernels/cuda/simt).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/simt/emulated_transfer.h"
#include "tests/common/transport/raw_sender.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

using baton::v1::HandoffFrame;
using ::testing::HasSubstr;

template <typename Function>
Function* OfEmulatedGpu(const char* name) {
  void* const library = dlopen(BATON_EMULATED_GPU, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

constexpr absl::Duration kStall = absl::Milliseconds(BATON_SANITIZED ? 1000 : 200);

class Ipc : public TransportTest {
 protected:
  Ipc() {
    receiver_options_.stall_limit = kStall;
    SetFaults("");
  }
  ~Ipc() override { SetFaults(""); }

  static void SetFaults(const char* plan) {
    OfEmulatedGpu<EmulatedSetFaults>(kEmulatedSetFaults)(plan);
  }
  static uint64_t Copies() { return OfEmulatedGpu<EmulatedCopies>(kEmulatedCopies)(); }

  static std::vector<std::span<const std::byte>> OnHost(PromptKv& prompt, const PutRange& range) {
    return prompt.Sources(range).spans;
  }
  // One put a block.
  void PutBlocks(KvWriter& writer, PromptKv& prompt) {
    for (uint32_t b = 0; b < prompt.count(); ++b) {
      const PutRange range{0, layout_.layers, b, b + 1};
      writer.Put(range, prompt.Sources(range), [](const absl::Status&) {});
    }
  }
  void ExpectWhole(uint64_t key, uint32_t blocks = 4) {
    PromptKv prompt(layout_, blocks, key);
    ASSERT_EQ(HandOver(key, prompt), absl::OkStatus());
    EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->id_of(Key(key)))));
  }
};

TEST_P(Ipc, BlocksGoFromPoolToPool) {
  Start();
  const uint64_t before = Copies();
  ExpectWhole(1, 6);
  EXPECT_EQ(Copies() - before, 6u) << "one for the layers of a block";
  EXPECT_EQ(landing_->in_pool(1), std::vector<bool>(6 * layout_.layers, true));
}

TEST_P(Ipc, BytesOfTheHostGoByTheSocketAndLandOnTheHost) {
  Start();
  const uint64_t before = Copies();
  PromptKv prompt(layout_, 3, 1);
  const auto writer = Open(1, prompt.tokens());
  Outcome commit;
  writer->Put(prompt.all(), OnHost(prompt, prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
  EXPECT_EQ(Copies(), before);
  EXPECT_EQ(landing_->in_pool(1), std::vector<bool>());
}

TEST_P(Ipc, TheLandingHearsOfEachSliceWhereItIs) {
  Start();
  PromptKv prompt(layout_, 2, 1);
  const auto writer = Open(1, prompt.tokens());
  Outcome commit;
  const PutRange pool{1, 3, 0, 2}, below{0, 1, 0, 2}, above{3, 5, 0, 2};
  writer->Put(below, OnHost(prompt, below), [](const absl::Status&) {});
  writer->Put(pool, prompt.Sources(pool), [](const absl::Status&) {});
  writer->Put(above, OnHost(prompt, above), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
  EXPECT_EQ(landing_->in_pool(1), (std::vector<bool>{false, true, true, false, false,  //
                                                     false, true, true, false, false}));
}

TEST_P(Ipc, SlicesThatHaveLandedAreComparedAndNotCopiedAgain) {
  Start();
  PromptKv prompt(layout_, 2, 1);
  const auto writer = Open(1, prompt.tokens());
  Outcome put, commit;
  const PutRange some{1, 2, 0, 1};
  writer->Put(some, prompt.Sources(some), put.done());
  ASSERT_EQ(put.Wait(), absl::OkStatus());
  const uint64_t before = Copies();
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
  EXPECT_EQ(Copies() - before, 3u) << "before and behind the slice, and the other block";
}

TEST_P(Ipc, APoolThatCannotBeMappedIsPassedOverForTheNextTransport) {
  StartReceiver();
  sender_options_.transports = {"cuda_ipc", "tcp"};
  StartSenderKeepingTransports();
  SetFaults("map-fails");
  PromptKv prompt(layout_, 3, 1);
  Outcome commit;
  const auto writer = Open(1, prompt.tokens());
  // Put before it is known that they do not travel from the pool.
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_EQ(writer->transport(), "tcp");
  EXPECT_FALSE(writer->prefers_pool());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
}

TEST_P(Ipc, BlocksOfAnotherTypeTakeTheNextTransport) {
  layout_ = SharedLayout(kv::KvType::kBf16);
  sender_options_.transports = {"cuda_ipc", "tcp"};
  for (const bool wire : {false, true}) {
    sender_layout_ = SharedLayout(wire ? kv::KvType::kBf16 : kv::KvType::kInt8);
    if (wire) sender_options_.wire = kv::KvType::kInt8;
    StartReceiver();
    StartSenderKeepingTransports();
    PromptKv prompt(*sender_layout_, 3, 1);
    Outcome commit;
    const auto writer = Open(1, prompt.tokens());
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
    writer->Commit({}, commit.done());
    EXPECT_EQ(commit.Wait(), absl::OkStatus());
    EXPECT_EQ(writer->transport(), "tcp");
    const kv::KvLayout travels = SharedLayout(kv::KvType::kInt8);
    EXPECT_TRUE(prompt.StoredAs(travels).StoredAs(layout_).Equals(landing_->blocks(1)));
  }
}

TEST_P(Ipc, ACopyThatFailsLetsTheHandOffGoOnOverTheSocketWithTheSameBytes) {
  for (const char* plan : {"copy-fails-after=0", "copy-fails-after=1", "copy-fails-after=6"}) {
    SCOPED_TRACE(plan);
    Start();
    SetFaults(plan);
    PromptKv prompt(layout_, 8, 1), beside(layout_, 5, 2);
    const auto writer = Open(1, prompt.tokens()), other = Open(2, beside.tokens());
    Outcome commit, other_commit;
    PutBlocks(*writer, prompt);
    writer->Commit({}, commit.done());
    PutBlocks(*other, beside);
    other->Commit({}, other_commit.done());
    EXPECT_EQ(commit.Wait(), absl::OkStatus());
    EXPECT_EQ(other_commit.Wait(), absl::OkStatus());
    EXPECT_TRUE(prompt.Equals(landing_->blocks(landing_->id_of(Key(1)))));
    EXPECT_TRUE(beside.Equals(landing_->blocks(landing_->id_of(Key(2)))));
    EXPECT_EQ(writer->bytes(), 8 * layout_.BlockBytes());
    EXPECT_EQ(landing_->aborted(), 0u);
    // The connection stays on its socket; another one copies again.
    SetFaults("");
    const uint64_t before = Copies();
    ExpectWhole(3);
    EXPECT_EQ(Copies(), before);
    StartSender();
    ExpectWhole(4);
    EXPECT_EQ(Copies() - before, 4u);
  }
}

TEST_P(Ipc, BytesThatAreSpoiledOnTheDeviceAreNotCommitted) {
  Start();
  SetFaults("copy-spoils-after=2");
  PromptKv prompt(layout_, 4, 1);
  EXPECT_EQ(HandOver(1, prompt).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->committed(), 0u);
}

// What a copy that hangs may still write into is nobody else's; all else goes on.
TEST_P(Ipc, ACopyThatHangsEndsItsHandOffAtTheStallLimitAndKeepsItsBlocksUntilItEnds) {
  Start();
  SetFaults("copy-hangs-after=2");
  const absl::Time begin = absl::Now();
  PromptKv prompt(layout_, 8, 1);
  const auto writer = Open(1, prompt.tokens());
  Outcome commit;
  PutBlocks(*writer, prompt);
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(absl::Now() - begin, kStall);
  EXPECT_LT(absl::Now() - begin, kStall + absl::Seconds(BATON_SANITIZED ? 8 : 2));
  ExpectWhole(2);
  EXPECT_EQ(landing_->aborted(), 0u) << "the copy may still write";
  SetFaults("");
  EXPECT_TRUE(landing_->WaitAborted(1));
  EXPECT_EQ(landing_->committed(), 1u);
}

TEST_P(Ipc, BlocksStayKeptWhenTheSenderGoesOrItsDeadlineEndsWhileACopyHangs) {
  receiver_options_.stall_limit = absl::Seconds(30);
  for (const bool deadline : {true, false}) {
    SCOPED_TRACE(deadline);
    Start();
    SetFaults("copy-hangs-after=0");
    PromptKv prompt(layout_, 4, 1);
    Outcome commit;
    const auto writer = Open(
        1, prompt.tokens(), [](const absl::Status&) {},
        deadline ? absl::Now() + absl::Milliseconds(300) : absl::InfiniteFuture());
    PutBlocks(*writer, prompt);
    writer->Commit({}, commit.done());
    ASSERT_TRUE(landing_->WaitGranted(1));
    absl::SleepFor(absl::Milliseconds(100));
    if (!deadline) sender_.reset();
    EXPECT_EQ(commit.Wait().code(),
              deadline ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable);
    absl::SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(landing_->aborted(), 0u);
    SetFaults("");
    EXPECT_TRUE(landing_->WaitAborted(1));
  }
}

TEST_P(Ipc, WithoutAPoolOneSentenceSaysSo) {
  landing_ = std::make_unique<FakeLanding>(layout_);
  ReceiverOptions options;
  options.socket_dir = dir_.path();
  options.cuda_ipc = true;
  const absl::Status receiver = MakeReceiver(options, layout_, landing_.get()).status();
  EXPECT_EQ(receiver.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(receiver.message()), HasSubstr("other processes can map"));
  sender_options_.transports = {"cuda_ipc"};
  EXPECT_EQ(MakeSender(sender_options_, layout_).status(), receiver);
  const auto offers = [](const char* device) {
    const std::vector<std::string> names = DefaultTransports(device);
    return std::count(names.begin(), names.end(), "cuda_ipc");
  };
  EXPECT_EQ(offers("cpu"), 0);
  EXPECT_EQ(offers("emulated"), 1);
}

class HostileIpcSender : public Ipc {
 protected:
  // Greets, reserves a block, and puts it with `places`.
  absl::StatusCode AnswerTo(const std::vector<uint64_t>& places) {
    RawSender sender({GetParam(), Address()});
    EXPECT_TRUE(sender.Greet(layout_));
    const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
    HandoffFrame frame;
    *frame.mutable_put() =
        sender.MakePut(granted, {0, layout_.layers, 0, 1}, std::string(layout_.BlockBytes(), 'x'));
    for (const uint64_t place : places) frame.mutable_put()->add_pool_offsets(place);
    sender.Send(frame);
    const HandoffFrame refused = sender.ReadUntil(HandoffFrame::kRefused);
    return static_cast<absl::StatusCode>(refused.refused().code());
  }
};

TEST_P(HostileIpcSender, PlacesThatNoPutCanHaveAreRefused) {
  StartReceiver();
  const uint64_t pool = RawSender::kRingBytes, block = layout_.BlockBytes();
  for (const std::vector<uint64_t>& places : {std::vector<uint64_t>{},
                                              {0, block},
                                              {pool},
                                              {pool - block + 16},
                                              {~uint64_t{0}},
                                              {~uint64_t{0} - block + 1},
                                              {8}}) {
    EXPECT_EQ(AnswerTo(places), absl::StatusCode::kInvalidArgument)
        << places.size() << " from " << (places.empty() ? 0 : places[0]);
  }
  // The last that there is; its bytes are not those of the checksum.
  EXPECT_EQ(AnswerTo({pool - block}), absl::StatusCode::kFailedPrecondition);
}

TEST_P(HostileIpcSender, ACommitThatDoesNotWaitForItsPutsIsRefusedAndWritesEndBeforeTheAbort) {
  StartReceiver();
  SetFaults("copy-hangs-after=0");
  RawSender sender({GetParam(), Address()});
  ASSERT_TRUE(sender.Greet(layout_));
  const auto granted = sender.Reserve(1, Key(1), kv::kBlockTokens);
  const std::string bytes(layout_.BlockBytes(), 'x');
  sender.SendPut(sender.MakePut(granted, {0, layout_.layers, 0, 1}, bytes), bytes);
  HandoffFrame commit;
  commit.mutable_commit()->set_transfer(1);
  commit.mutable_commit()->set_ticket_id(granted.ticket_id());
  commit.mutable_commit()->set_epoch(granted.epoch());
  commit.mutable_commit()->set_slices(layout_.layers);
  commit.mutable_commit()->set_prompt_tokens(kv::kBlockTokens);
  sender.Send(commit);
  const HandoffFrame refused = sender.ReadUntil(HandoffFrame::kRefused);
  EXPECT_THAT(refused.refused().message(), HasSubstr("before its puts"));
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(landing_->aborted(), 0u);
  SetFaults("");
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(HostileIpcSender, MemoryThatIsNotWhatTheHelloSaysIsNotMapped) {
  StartReceiver();
  RawSender without({GetParam(), Address()});
  without.SendBytes(EncodeFrame(without.Hello(layout_)));
  EXPECT_EQ(without.Read().refused().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  for (const uint64_t bytes : {RawSender::kRingBytes / 2, 2 * RawSender::kRingBytes}) {
    RawSender sender({GetParam(), Address()});
    HandoffFrame hello = sender.Hello(layout_);
    hello.mutable_hello()->set_ring_bytes(bytes);
    sender.SendHello(hello);
    EXPECT_NE(sender.ReadUntil(HandoffFrame::kIpcPath).ipc_path().lost(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Kv, Ipc, ::testing::Values("cuda_ipc"));
INSTANTIATE_TEST_SUITE_P(Kv, HostileIpcSender, ::testing::Values("cuda_ipc"));

}  // namespace
}  // namespace baton::transport
