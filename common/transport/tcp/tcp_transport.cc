// SPDX-License-Identifier: Apache-2.0
#include "common/transport/tcp/tcp_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/transport/tcp/tcp_socket.h"

namespace baton::transport {
namespace {

// One hand-off's frame holds up the others of the connection for so long.
constexpr size_t kStreamFrameBytes = 1 << 20;

class StreamChannel final : public PutChannel {
 public:
  size_t frame_bytes() const override { return kStreamFrameBytes; }
  // The socket's buffer is the limit; the stream is asked before.
  bool CanSend(size_t) const override { return true; }
  void Stage(baton::v1::Put&, Sources sources) override { staged_ = sources; }
  void Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
            EventLoop::Task sent) override {
    stream->SendWithPayload(frame, std::exchange(staged_, {}), std::move(sent));
  }
  absl::Status Consumed(uint64_t) override {
    return absl::InvalidArgumentError("consumed, on a connection without a ring");
  }

 private:
  Sources staged_;
};

class StreamSource final : public PutSource {
 public:
  absl::StatusOr<const std::byte*> Locate(const baton::v1::Put& put,
                                          uint32_t payload_bytes) const override {
    if (payload_bytes == put.bytes()) return nullptr;
    return absl::InvalidArgumentError(
        absl::StrCat("put of ", put.bytes(), " bytes with ", payload_bytes, " behind it"));
  }
  bool reports_consumed() const override { return false; }
};

absl::StatusOr<OutgoingChannel> MakeStreamChannel(const ChannelContext&, baton::v1::HandoffHello&) {
  return OutgoingChannel{std::make_unique<StreamChannel>(), UniqueFd()};
}

absl::StatusOr<std::unique_ptr<PutSource>> MakeStreamSource(const SourceContext&,
                                                            const baton::v1::HandoffHello&,
                                                            UniqueFd, baton::v1::HandoffWelcome&) {
  return std::make_unique<StreamSource>();
}

}  // namespace

Transport TcpTransport() {
  return {
      "tcp",
      SocketKind::kTcp,
      NoSupport,
      DialTcp,
      MakeStreamChannel,
      [](const ReceiverOptions& options) { return options.tcp && !options.tcp_address.empty(); },
      ListenTcp,
      MakeStreamSource};
}

}  // namespace baton::transport
