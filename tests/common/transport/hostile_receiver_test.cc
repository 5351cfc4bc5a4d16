// SPDX-License-Identifier: Apache-2.0
// What a sender does with receivers that speak nonsense: its calls end, and
// nothing else happens.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "common/transport/frame.h"
#include "common/transport/tcp/tcp_socket.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

using baton::v1::HandoffFrame;

// Accepts one connection and answers the first and second message it hears
// with fixed bytes; then it waits for the end.
class ScriptedReceiver {
 public:
  ScriptedReceiver(std::string first, std::string second)
      : answers_{std::move(first), std::move(second)} {
    ReceiverOptions options;
    options.tcp_address = "127.0.0.1:0";
    Listener listener = ListenTcp(options).value();
    socket_ = std::move(listener.socket);
    address_ = listener.endpoint.address;
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedReceiver() { thread_.join(); }
  const std::string& address() const { return address_; }

 private:
  void Run() {
    pollfd wait{socket_.get(), POLLIN, 0};
    poll(&wait, 1, 5000);
    UniqueFd peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<char, 65536> heard;
    for (size_t i = 0; recv(peer.get(), heard.data(), heard.size(), 0) > 0; ++i) {
      if (i < answers_.size()) {
        send(peer.get(), answers_[i].data(), answers_[i].size(), MSG_NOSIGNAL);
      }
    }
  }

  const std::array<std::string, 2> answers_;
  UniqueFd socket_;
  std::string address_;
  std::thread thread_;
};

class HostileReceiver : public TransportTest {
 protected:
  absl::Status HandOverTo(const std::string& first, const std::string& second) {
    StartSender();
    ScriptedReceiver receiver(first, second);
    PromptKv prompt(layout_, 2, 1);
    const auto writer = sender_->Open({{GetParam(), receiver.address()}}, {Key(1), prompt.tokens()},
                                      absl::Now() + absl::Seconds(5), [](const absl::Status&) {});
    Outcome put, commit;
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
    writer->Commit({}, commit.done());
    const absl::Status ended = commit.Wait();
    EXPECT_TRUE(put.Ready(kPatience));
    sender_.reset();  // lets the script end
    return ended;
  }
};

TEST_P(HostileReceiver, NonsenseEndsTheCallsWithUnavailable) {
  HandoffFrame welcome, reserve, consumed, committed, granted;
  welcome.mutable_welcome();
  reserve.mutable_reserve();
  consumed.mutable_consumed()->set_bytes(uint64_t{1} << 60);
  granted.mutable_granted()->set_transfer(1);
  granted.mutable_granted()->set_ticket_id(std::string(16, 't'));
  granted.mutable_granted()->set_block_count(0xffffffff);
  granted.mutable_granted()->set_lease_ms(1000);
  HandoffFrame short_ticket = granted, no_lease = granted, reversed = granted;
  for (HandoffFrame* frame : {&short_ticket, &no_lease, &reversed}) {
    frame->mutable_granted()->set_block_count(2);
  }
  short_ticket.mutable_granted()->set_ticket_id("t");
  no_lease.mutable_granted()->set_lease_ms(0);
  reversed.mutable_granted()->set_first_block(3);
  const std::string up = EncodeFrame(welcome);
  for (const std::string& first : {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"),
                                   EncodeFrame(granted), EncodeFrame(reserve)}) {
    EXPECT_EQ(HandOverTo(first, "").code(), absl::StatusCode::kUnavailable);
  }
  for (const HandoffFrame& second :
       {welcome, reserve, consumed, granted, short_ticket, no_lease, reversed}) {
    EXPECT_EQ(HandOverTo(up, EncodeFrame(second)).code(), absl::StatusCode::kUnavailable)
        << second.DebugString();
  }
  EXPECT_EQ(HandOverTo(up, EncodeFrame(welcome, 5) + "bytes").code(),
            absl::StatusCode::kUnavailable);
}

TEST_P(HostileReceiver, RefusalKeepsItsCodeAndUnknownTransfersAreIgnored) {
  HandoffFrame welcome, other;
  welcome.mutable_welcome();
  other.mutable_committed()->set_transfer(77);
  const std::string up = EncodeFrame(welcome);
  EXPECT_EQ(HandOverTo(up, EncodeFrame(other) +
                               EncodeFrame(RefusedFrame(1, absl::NotFoundError("unknown key")))),
            absl::NotFoundError("unknown key"));
  EXPECT_EQ(
      HandOverTo(EncodeFrame(RefusedFrame(0, absl::FailedPreconditionError("other model"))), ""),
      absl::FailedPreconditionError("other model"));
}

INSTANTIATE_TEST_SUITE_P(Kv, HostileReceiver, ::testing::Values("tcp"));

class HostileUcxReceiver : public HostileReceiver {};

// UCX itself believes any address: what reaches it has a checksum.
TEST_P(HostileUcxReceiver, WelcomeWithoutARingOrWithAnotherEndsTheCallsWithUnavailable) {
  HandoffFrame none, small, spoiled;
  none.mutable_welcome();
  baton::v1::UcxRing& ring = *small.mutable_welcome()->mutable_ucx();
  ring.set_worker_address("address");
  ring.set_key("key");
  ring.set_bytes(4096);
  spoiled = small;
  spoiled.mutable_welcome()->mutable_ucx()->set_bytes(sender_options_.ring_bytes);
  spoiled.mutable_welcome()->mutable_ucx()->set_crc32c(1);
  for (const HandoffFrame& welcome : {none, small, spoiled}) {
    const absl::Status status = HandOverTo(EncodeFrame(welcome), "");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("UCX"), absl::string_view::npos) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Kv, HostileUcxReceiver, ::testing::ValuesIn([] {
                           std::vector<std::string> names = TransportNames();
                           std::erase_if(names, [](const auto& name) { return name != "ucx"; });
                           return names;
                         }()));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostileUcxReceiver);

}  // namespace
}  // namespace baton::transport
