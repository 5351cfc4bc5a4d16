// SPDX-License-Identifier: Apache-2.0
// Who may talk to whom, and where: layouts, addresses, endpoints.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <functional>

#include "common/base/unique_fd.h"
#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

using Connect = TransportTest;

TEST_P(Connect, LayoutThatDiffersIsRefusedNamingFieldAndValues) {
  StartReceiver();
  const auto refusal = [&](const std::function<void(kv::KvLayout&)>& change) {
    sender_layout_ = layout_;
    change(*sender_layout_);
    StartSender();
    Outcome granted;
    const auto writer = Open(1, 64, granted.done());
    const absl::Status status = granted.Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal([](auto& l) { l.layers = 6; }),
            "KV layouts differ in layers: ours is 5, theirs is 6");
  const std::vector<std::pair<const char*, std::function<void(kv::KvLayout&)>>> changes = {
      {"kv_heads", [](auto& l) { l.kv_heads = 4; }},
      {"head_dim", [](auto& l) { l.head_dim = 32; }},
      {"type", [](auto& l) { l.type = kv::KvType::kF32; }},
      {"slice_layout", [](auto& l) { l.slice_layout = "other/1"; }},
      {"model_fingerprint", [](auto& l) { l.model_fingerprint = "model-b"; }},
      {"compute_id", [](auto& l) { l.compute_id = "avx512"; }},
      {"numerics_id", [](auto& l) { l.numerics_id = "avx512/1"; }}};
  for (const auto& [field, change] : changes) {
    EXPECT_NE(refusal(change).find(field), std::string::npos) << field;
  }
  EXPECT_EQ(landing_->granted(), 0u);
}

TEST_P(Connect, AddressInUseIsUnavailableAndNamed) {
  if (GetParam() != "tcp") return;  // sockets in a folder never clash, see Endpoints
  StartReceiver();
  ReceiverOptions options = receiver_options_;
  options.socket_dir.clear();
  options.tcp_address = Address();
  const auto second = MakeReceiver(options, layout_, landing_.get());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(Address()), absl::string_view::npos);
  StartSender();
  PromptKv prompt(layout_, 1, 1);
  EXPECT_EQ(HandOver(1, prompt), absl::OkStatus()) << "the first one still serves";
}

TEST_P(Connect, NobodyThereIsUnavailableAndTheNextOpenTriesAgain) {
  StartReceiver();
  const std::string address = Address();
  const std::vector<Endpoint> endpoints = {{GetParam(), address}};
  receiver_.reset();
  StartSender();
  for (int i = 0; i < 2; ++i) {
    Outcome granted, put;
    PromptKv prompt(layout_, 1, 1);
    const auto writer =
        sender_->Open(endpoints, {Key(1), 32}, absl::InfiniteFuture(), granted.done());
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
    EXPECT_EQ(granted.Wait().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(put.Wait().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_P(Connect, ReceiverThatNeverAnswersTheHelloTimesOut) {
  StartReceiver();  // only for its folder
  sender_options_.connect_timeout = absl::Milliseconds(200);
  StartSender();
  // A listener whose connections nobody accepts.
  UniqueFd mute(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir_.path() + "/mute.sock";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(mute.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(mute.get(), 4), 0);
  sender_options_.transports = {"shm", "tcp"};
  StartSenderKeepingTransports();
  Outcome granted;
  std::vector<Endpoint> endpoints = {{"shm", path}};
  if (GetParam() == "tcp") {
    // Falls through to the one that works.
    for (const Endpoint& e : receiver_->endpoints()) {
      if (e.transport == "tcp") endpoints.push_back(e);
    }
  }
  const auto writer =
      sender_->Open(endpoints, {Key(1), 32}, absl::InfiniteFuture(), granted.done());
  if (GetParam() == "tcp") {
    EXPECT_EQ(granted.Wait(), absl::OkStatus());
    EXPECT_EQ(writer->transport(), "tcp");
  } else {
    EXPECT_EQ(granted.Wait().code(), absl::StatusCode::kUnavailable);
  }
}

BATON_ALL_TRANSPORTS(Connect);

class Endpoints : public TransportTest {};

TEST_P(Endpoints, PreferenceOfTheSenderDecides) {
  StartReceiver();
  EXPECT_EQ(receiver_->endpoints().at(0).transport, "shm");
  EXPECT_EQ(receiver_->endpoints().at(1).transport, "tcp");
  for (const char* first : {"shm", "tcp"}) {
    sender_options_.transports = {first, first == std::string("shm") ? "tcp" : "shm"};
    StartSenderKeepingTransports();
    Outcome granted;
    const auto writer = Open(1, 32, granted.done());
    ASSERT_EQ(granted.Wait(), absl::OkStatus());
    EXPECT_EQ(writer->transport(), first);
  }
}

TEST_P(Endpoints, NoUsableEndpointIsUnavailable) {
  StartReceiver();
  sender_options_.transports = {"tcp"};
  StartSenderKeepingTransports();
  Outcome none, foreign;
  const auto a = sender_->Open({}, {Key(1), 32}, absl::InfiniteFuture(), none.done());
  const auto b = sender_->Open({{"shm", Address()}, {"rdma", "x"}}, {Key(1), 32},
                               absl::InfiniteFuture(), foreign.done());
  EXPECT_EQ(none.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(foreign.Wait().code(), absl::StatusCode::kUnavailable);
}

TEST_P(Endpoints, SocketFileIsPrivateReplacedWhenStaleAndRemovedAtTheEnd) {
  StartReceiver();
  const std::string path = Address();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  receiver_.reset();
  EXPECT_NE(stat(path.c_str(), &status), 0);
  {
    // What a killed process leaves: a file that nobody listens on.
    UniqueFd dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  StartReceiver();
  EXPECT_EQ(Address(), path);
  sender_options_.transports = {"shm"};
  StartSenderKeepingTransports();
  PromptKv prompt(layout_, 1, 1);
  EXPECT_EQ(HandOver(1, prompt), absl::OkStatus());
}

// Two clusters on one host give their workers the same ids.
TEST_P(Endpoints, ReceiversOfOneIdInOneFolderBothServe) {
  StartReceiver();
  ReceiverOptions options = receiver_options_;
  options.tcp_address.clear();
  const auto second = MakeReceiver(options, layout_, landing_.get());
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ((*second)->endpoints().size(), 1u);
  EXPECT_NE((*second)->endpoints()[0].address, Address());
  sender_options_.transports = {"shm"};
  StartSenderKeepingTransports();
  PromptKv prompt(layout_, 1, 1);
  EXPECT_EQ(HandOver(1, prompt), absl::OkStatus());
}

TEST_P(Endpoints, OptionsThatCannotWorkSayWhatToChange) {
  landing_ = std::make_unique<FakeLanding>(layout_);
  const auto message = [&](const ReceiverOptions& options) {
    const auto receiver = MakeReceiver(options, layout_, landing_.get());
    EXPECT_EQ(receiver.status().code(), absl::StatusCode::kInvalidArgument) << receiver.status();
    return std::string(receiver.status().message());
  };
  ReceiverOptions options;
  EXPECT_NE(message(options).find("neither"), std::string::npos);
  options.socket_dir = "/tmp/" + std::string(120, 'x');
  EXPECT_NE(message(options).find("shorter socket_dir"), std::string::npos);
  options.socket_dir.clear();
  options.tcp_address = "no-port";
  EXPECT_NE(message(options).find("HOST:PORT"), std::string::npos);
  options.tcp_address = "0.0.0.0:0";
  EXPECT_NE(message(options).find("tcp_advertise_host"), std::string::npos);
  options.tcp_advertise_host = "127.0.0.1";
  const auto receiver = MakeReceiver(options, layout_, landing_.get());
  ASSERT_TRUE(receiver.ok()) << receiver.status();
  EXPECT_EQ((*receiver)->endpoints().at(0).address.rfind("127.0.0.1:", 0), 0u);

  SenderOptions sender;
  sender.transports = {"pigeon"};
  EXPECT_EQ(MakeSender(sender, layout_).status().code(), absl::StatusCode::kInvalidArgument);
  sender.transports = {"shm"};
  sender.ring_bytes = layout_.LayerBytes() - 1;
  EXPECT_EQ(MakeSender(sender, layout_).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kv, Endpoints, ::testing::Values("shm"));

}  // namespace
}  // namespace baton::transport
