// SPDX-License-Identifier: Apache-2.0
// What only the ucx transport has: a ring that is written from outside, lanes
// that UCX chooses, acknowledgements that may not come.
#include <gtest/gtest.h>

#include <functional>

#include "common/transport/fault/fault_sender.h"
#include "common/transport/ucx/ucx_peer.h"
#include "common/transport/ucx/ucx_transport.h"
#include "tests/common/transport/raw_sender.h"
#include "tests/common/transport/transport_fixture.h"
#include "tests/testing/environment.h"

namespace baton::transport {
namespace {

using baton::v1::HandoffFrame;

// UCX reads its settings when the first connection is made.
using UcxSetting = EnvironmentSetting;

constexpr const char* kSockets = "tcp,self";

TEST(OnlyTcp, OneBetterLaneIsEnough) {
  EXPECT_TRUE(OnlyTcp({"tcp/lo"}));
  EXPECT_TRUE(OnlyTcp({"tcp/lo", "tcp/eth0"}));
  EXPECT_FALSE(OnlyTcp({"tcp/lo", "posix/memory"}));
  EXPECT_FALSE(OnlyTcp({"rc_mlx5/mlx5_0:1"}));
  EXPECT_FALSE(OnlyTcp({})) << "UCX told nothing: no reason to give it up";
}

class Ucx : public TransportTest {
 protected:
  // Over ucx to `endpoints`; what the writer says of its transport once it is granted.
  std::string TransportTo(const std::vector<Endpoint>& endpoints) {
    Outcome granted;
    const auto writer =
        sender_->Open(endpoints, {Key(1), 64}, absl::InfiniteFuture(), granted.done());
    const absl::Status status = granted.Wait();
    EXPECT_EQ(status, absl::OkStatus());
    return status.ok() ? writer->transport() : "";
  }
};

// Debian's UCX falls back to TCP on one host unless it is told otherwise.
TEST_P(Ucx, ProcessesOfOneHostPutThroughSharedMemory) {
  const UcxSetting any("UCX_TLS", "all");
  ASSERT_TRUE(UcxContext::Get().ok());
  const auto ring = UcxMemory::Make(UcxContext::Get().value(), 1 << 20);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const auto loop = EventLoop::Make("ucx-test").value();
  std::unique_ptr<UcxPeer> receiver, sender;
  auto staging = UcxMemory::Make(UcxContext::Get().value(), 1 << 20);
  ASSERT_TRUE(staging.ok()) << staging.status();
  std::fill_n(staging->data(), staging->size(), std::byte{0x5a});
  std::promise<std::vector<std::string>> lanes;
  loop->Post([&] {
    const auto ignore = [](const absl::Status&) {};
    const auto context = UcxContext::Get().value();
    receiver = UcxPeer::Make(context, loop.get(), absl::Seconds(5), ignore).value();
    sender = UcxPeer::Make(context, loop.get(), absl::Seconds(5), ignore).value();
    EXPECT_EQ(sender->Connect(receiver->Address().value(), ring->Key().value()), absl::OkStatus());
    sender->Put(*staging, 64, 4096, reinterpret_cast<uintptr_t>(ring->data()) + 128,
                [&] { lanes.set_value(sender->lanes()); });
  });
  auto told = lanes.get_future();
  EXPECT_EQ(told.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  loop->Stop([&] {
    sender.reset();
    receiver.reset();
  });
  const std::vector<std::string> names = told.get();
  EXPECT_FALSE(names.empty());
  EXPECT_FALSE(OnlyTcp(names));
  EXPECT_NE(ring->data()[127], std::byte{0x5a});
  EXPECT_EQ(ring->data()[128], std::byte{0x5a});
  EXPECT_EQ(ring->data()[128 + 4095], std::byte{0x5a});
  EXPECT_NE(ring->data()[128 + 4096], std::byte{0x5a});
}

TEST_P(Ucx, WithNothingButSocketsGivesWayToPlainTcpWhereThatIsOffered) {
  const UcxSetting sockets("UCX_TLS", kSockets);
  StartReceiver();
  sender_options_.transports = {"ucx", "tcp"};
  StartSenderKeepingTransports();
  EXPECT_EQ(TransportTo(receiver_->endpoints()), "tcp");
  sender_.reset();
  // Asked for alone, it works nevertheless.
  StartSender();
  EXPECT_EQ(TransportTo(receiver_->endpoints()), "ucx");
  PromptKv prompt(layout_, 3, 1);
  EXPECT_EQ(HandOver(2, prompt), absl::OkStatus());
}

TEST_P(Ucx, SettingsThatLeaveNoDeviceAreAnErrorOfTheReceiver) {
  const UcxSetting nothing("UCX_TLS", "no_such_transport");
  landing_ = std::make_unique<FakeLanding>(layout_);
  ReceiverOptions options;
  options.tcp_address = "127.0.0.1:0";
  options.ucx = true;
  const auto receiver = MakeReceiver(options, layout_, landing_.get());
  EXPECT_EQ(receiver.status().code(), absl::StatusCode::kUnavailable) << receiver.status();
  EXPECT_NE(receiver.status().message().find("UCX"), absl::string_view::npos);
}

TEST_P(Ucx, WithoutAcknowledgementsTheHandOffGoesOnOverTheSocket) {
  const UcxSetting sockets("UCX_TLS", kSockets);
  UseLargeBlocks();
  sender_options_.stall_limit = absl::Milliseconds(300);
  ExpectWholeFromAFrozenReceiver();
}

TEST_P(Ucx, LostInTheMiddleTheHandOffGoesOnOverTheSocketWithTheSameBytes) {
  for (const char* way : {"all", kSockets}) {
    const UcxSetting setting("UCX_TLS", way);
    for (const uint64_t after : {1, 700'000, 3'000'000}) {
      UseLargeBlocks();
      sender_options_.ring_bytes = 2 << 20;
      Start();
      FaultPlan plan;
      plan.lose_path_after_bytes = after;
      sender_ = MakeFaultySender(std::move(sender_), plan).value();
      for (uint64_t key = 1; key <= 2; ++key) {
        PromptKv prompt(layout_, 8, key);
        EXPECT_EQ(HandOver(key, prompt), absl::OkStatus());
        EXPECT_TRUE(prompt.Equals(landing_->blocks(key))) << way << " " << after;
      }
    }
  }
}

TEST_P(Ucx, BytesPutAfterTheConnectionsEndReachNobody) {
  StartReceiver();
  RawSender late({"ucx", Address()});
  ASSERT_TRUE(late.Greet(layout_));
  const auto granted = late.Reserve(1, Key(1), kv::kBlockTokens);
  const std::string bytes(layout_.BlockBytes(), 'x');
  baton::v1::Put put = late.MakePut(granted, {0, 5, 0, 1}, bytes);
  late.Close();
  ASSERT_TRUE(landing_->WaitAborted(1));
  landing_->ReuseBlocksOf(1);
  StartSender();
  PromptKv prompt(layout_, 1, 2);
  EXPECT_EQ(HandOver(2, prompt), absl::OkStatus());
  for (int i = 0; i < 20; ++i) late.SendPut(put, bytes);
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
  EXPECT_EQ(HandOver(3, prompt), absl::OkStatus());
}

TEST_P(Ucx, RingBeyondTheLimitIsRefusedWithNumbers) {
  StartReceiver();
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40}) {
    RawSender sender({"ucx", Address()});
    HandoffFrame hello = sender.Hello(layout_);
    hello.mutable_hello()->set_ring_bytes(bytes);
    sender.SendHello(hello);
    const HandoffFrame answer = sender.Read();
    EXPECT_EQ(answer.refused().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_NE(answer.refused().message().find("67108864"), std::string::npos)
        << answer.refused().message();
  }
}

TEST_P(Ucx, TransportThatTheAddressDoesNotServeIsRefused) {
  receiver_options_.tcp = false;
  StartReceiver();
  EXPECT_EQ(receiver_->endpoints().back().transport, "ucx") << "plain tcp is not announced";
  RawSender sender({"tcp", Address()});
  sender.SendHello(sender.Hello(layout_));
  EXPECT_NE(sender.Read().refused().message().find("\"tcp\" is not offered"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Kv, Ucx, ::testing::Values("ucx"));

}  // namespace
}  // namespace baton::transport
