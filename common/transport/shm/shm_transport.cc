// SPDX-License-Identifier: Apache-2.0
#include "common/transport/shm/shm_transport.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/transport/shm/ring.h"
#include "common/transport/shm/unix_socket.h"

namespace baton::transport {
namespace {

// Small enough that the receiver copies what is still in a shared cache.
constexpr size_t kRingFrameBytes = 256 << 10;

class RingChannel final : public PutChannel {
 public:
  RingChannel(Ring ring, EventLoop* loop) : ring_(std::move(ring)), loop_(loop) {}

  size_t frame_bytes() const override { return std::min(kRingFrameBytes, ring_.size() / 4); }
  bool CanSend(size_t bytes) const override { return ring_.space().HasRoom(bytes); }

  void Stage(baton::v1::Put& put, Sources sources) override {
    StageInRing(ring_.space(), ring_.data(), put, sources);
  }

  void Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
            EventLoop::Task sent) override {
    stream->Send(frame);
    loop_->Defer(std::move(sent));
  }

  absl::Status Consumed(uint64_t bytes) override { return ring_.space().Release(bytes); }

 private:
  Ring ring_;
  EventLoop* const loop_;
};

class RingSource final : public PutSource {
 public:
  explicit RingSource(Mapping ring) : ring_(std::move(ring)) {}

  absl::StatusOr<const std::byte*> Locate(const baton::v1::Put& put,
                                          uint32_t payload_bytes) const override {
    return LocateInRing({ring_.data(), ring_.size()}, put, payload_bytes);
  }
  bool reports_consumed() const override { return true; }

 private:
  Mapping ring_;
};

absl::StatusOr<OutgoingChannel> MakeRingChannel(const ChannelContext& context,
                                                baton::v1::HandoffHello& hello) {
  BATON_ASSIGN_OR_RETURN(Ring ring, Ring::Make(context.options.ring_bytes));
  UniqueFd pass(dup(ring.fd()));
  if (!pass.valid()) return absl::ResourceExhaustedError("no descriptor for the ring");
  hello.set_ring_bytes(ring.size());
  return OutgoingChannel{std::make_unique<RingChannel>(std::move(ring), context.loop),
                         std::move(pass)};
}

absl::StatusOr<std::unique_ptr<PutSource>> MakeRingSource(const SourceContext&,
                                                          const baton::v1::HandoffHello& hello,
                                                          UniqueFd passed,
                                                          baton::v1::HandoffWelcome&) {
  BATON_ASSIGN_OR_RETURN(Mapping ring, MapRing(std::move(passed), hello.ring_bytes()));
  return std::make_unique<RingSource>(std::move(ring));
}

}  // namespace

Transport ShmTransport() {
  return {"shm",
          SocketKind::kUnix,
          NoSupport,
          DialUnix,
          MakeRingChannel,
          [](const ReceiverOptions& options) { return options.shm && !options.socket_dir.empty(); },
          ListenUnix,
          MakeRingSource};
}

}  // namespace baton::transport
