// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ucx/ucx_transport.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/crc32c.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/transport/ring_channel.h"
#include "common/transport/ring_space.h"
#include "common/transport/tcp/tcp_socket.h"
#include "common/transport/ucx/ucx_context.h"
#include "common/transport/ucx/ucx_peer.h"

namespace baton::transport {
namespace {

// Large enough for a device to be at full speed, small enough that the copies on
// both sides run beside it.
constexpr size_t kUcxFrameBytes = 256 << 10;
// Put at the ring's beginning to see whether bytes get through.
constexpr size_t kProbeBytes = 8;

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

uint32_t ChecksumOf(const baton::v1::UcxRing& ring) {
  return Crc32c(Bytes(ring.key()), Crc32c(Bytes(ring.worker_address())));
}

class UcxChannel final : public RingChannel {
 public:
  UcxChannel(UcxMemory staging, const ChannelContext& context)
      : RingChannel(staging.size(), kUcxFrameBytes, context.loop),
        staging_(std::move(staging)),
        loop_(context.loop),
        lost_(context.lost),
        tcp_follows_(context.tcp_follows) {
    SetRing(staging_.data());
  }

  absl::Status Start(std::shared_ptr<UcxContext> ucx, absl::Duration stall_limit) {
    BATON_ASSIGN_OR_RETURN(
        peer_, UcxPeer::Make(std::move(ucx), loop_, stall_limit,
                             [this](const absl::Status& reason) { OnPeerLost(reason); }));
    return absl::OkStatus();
  }

  void Welcomed(const baton::v1::HandoffWelcome& welcome, Done ready) override {
    const absl::Status begun = Begin(welcome.ucx());
    if (!begun.ok()) return peer_->Later([ready = std::move(ready), begun] { ready(begun); });
    peer_->Put(staging_, 0, std::min(kProbeBytes, staging_.size()), ring_,
               [this, ready = std::move(ready)] {
                 const absl::Status judged = JudgeLanes();
                 ready_ = judged.ok();
                 peer_->Later([ready, judged] { ready(judged); });
               });
  }

  absl::Status Arrived(const baton::v1::Arrived& arrived) override {
    return peer_ == nullptr ? absl::OkStatus() : peer_->Acknowledge(arrived.puts());
  }

  void LosePath() override {
    if (peer_ != nullptr) peer_->Break(absl::UnavailableError("UCX: cut"));
  }

 private:
  bool SendBytes(const baton::v1::Put& put) override {
    if (peer_ == nullptr) return false;
    peer_->Put(staging_, put.ring_offset(), put.bytes(), ring_ + put.ring_offset(),
               [this] { PutArrived(); });
    return true;
  }

  absl::Status Begin(const baton::v1::UcxRing& ring) {
    if (ring.bytes() != staging_.size() || ring.worker_address().empty() || ring.key().empty()) {
      return absl::UnavailableError("the receiver's welcome has no ring for UCX");
    }
    if (ring.crc32c() != ChecksumOf(ring)) {
      return absl::UnavailableError("the receiver's UCX address does not have its checksum");
    }
    ring_ = ring.address();
    return peer_->Connect(ring.worker_address(), ring.key());
  }

  absl::Status JudgeLanes() const {
    const std::string names = absl::StrJoin(peer_->lanes(), ", ");
    if (!OnlyTcp(peer_->lanes())) {
      LogInfo("ucx connected", {{"lanes", names}});
      return absl::OkStatus();
    }
    if (tcp_follows_) {
      return absl::UnavailableError(
          absl::StrCat("UCX has only TCP sockets to this peer (", names, "); plain tcp is better"));
    }
    LogWarning("ucx has only tcp sockets to this peer: slower than --transport tcp",
               {{"lanes", names}});
    return absl::OkStatus();
  }

  // The socket outlives UCX: what the receiver has not confirmed is still staged,
  // and goes behind its frames, as all that follows.
  void OnPeerLost(const absl::Status& reason) {
    if (!ready_) {
      const auto lost = lost_;  // this channel may go with the call
      return lost(reason);
    }
    LogWarning("ucx is lost, kv goes on over tcp", {{"reason", std::string(reason.message())}});
    peer_.reset();
    SendHeldInline();
  }

  UcxMemory staging_;  // after peer_ in death
  EventLoop* const loop_;
  const std::function<void(const absl::Status&)> lost_;
  const bool tcp_follows_;
  bool ready_ = false;
  std::unique_ptr<UcxPeer> peer_;  // null once it is lost
  uint64_t ring_ = 0;              // the receiver's address of it
};

class UcxSource final : public PutSource {
 public:
  UcxSource(UcxMemory ring, std::unique_ptr<UcxPeer> peer, const SourceContext& context)
      : ring_(std::move(ring)), send_(context.send), peer_(std::move(peer)) {}

  absl::Status Start() {
    return peer_->TakeMessages(&ring_, [this] {
      if (arrived_++ == 0) peer_->Later([this] { TellArrived(); });
    });
  }

  absl::StatusOr<const std::byte*> Locate(const baton::v1::Put& put,
                                          uint32_t payload_bytes) const override {
    return LocateOnRingOrSocket({ring_.data(), ring_.size()}, put, payload_bytes);
  }
  bool reports_consumed() const override { return true; }

  absl::Status Describe(baton::v1::UcxRing& into) const {
    BATON_ASSIGN_OR_RETURN(*into.mutable_worker_address(), peer_->Address());
    BATON_ASSIGN_OR_RETURN(*into.mutable_key(), ring_.Key());
    into.set_address(reinterpret_cast<uintptr_t>(ring_.data()));
    into.set_bytes(ring_.size());
    into.set_crc32c(ChecksumOf(into));
    return absl::OkStatus();
  }

 private:
  void TellArrived() {
    baton::v1::HandoffFrame frame;
    frame.mutable_arrived()->set_puts(std::exchange(arrived_, 0));
    send_(frame);
  }

  UcxMemory ring_;  // after peer_ in death, which writes to it
  const std::function<void(const baton::v1::HandoffFrame&)> send_;
  const std::unique_ptr<UcxPeer> peer_;
  uint64_t arrived_ = 0;  // messages that the sender has not heard of
};

absl::StatusOr<OutgoingChannel> MakeUcxChannel(const ChannelContext& context,
                                               baton::v1::HandoffHello& hello) {
  const uint64_t bytes = std::min<uint64_t>(context.options.ring_bytes, kMostReceiverRing);
  BATON_ASSIGN_OR_RETURN(auto ucx, UcxContext::Get());
  BATON_ASSIGN_OR_RETURN(UcxMemory staging, UcxMemory::Make(ucx, bytes));
  auto channel = std::make_unique<UcxChannel>(std::move(staging), context);
  BATON_RETURN_IF_ERROR(channel->Start(std::move(ucx), context.options.stall_limit));
  hello.set_ring_bytes(bytes);
  return OutgoingChannel{std::move(channel), UniqueFd()};
}

absl::StatusOr<std::unique_ptr<PutSource>> MakeUcxSource(const SourceContext& context,
                                                         const baton::v1::HandoffHello& hello,
                                                         UniqueFd,
                                                         baton::v1::HandoffWelcome& welcome) {
  BATON_RETURN_IF_ERROR(CheckRingBytes(hello.ring_bytes(), kMostReceiverRing));
  BATON_ASSIGN_OR_RETURN(auto ucx, UcxContext::Get());
  BATON_ASSIGN_OR_RETURN(UcxMemory ring, UcxMemory::Make(ucx, hello.ring_bytes()));
  // It only receives: no stall to look for.
  BATON_ASSIGN_OR_RETURN(auto peer,
                         UcxPeer::Make(ucx, context.loop, absl::InfiniteDuration(), context.lost));
  auto source = std::make_unique<UcxSource>(std::move(ring), std::move(peer), context);
  BATON_RETURN_IF_ERROR(source->Start());
  BATON_RETURN_IF_ERROR(source->Describe(*welcome.mutable_ucx()));
  return source;
}

// Whoever offers UCX must be able to run it.
absl::StatusOr<Listener> ListenUcx(const ReceiverOptions& options) {
  BATON_RETURN_IF_ERROR(UcxContext::Get().status());
  return ListenTcp(options);
}

}  // namespace

bool OnlyTcp(const std::vector<std::string>& lanes) {
  return !lanes.empty() && std::all_of(lanes.begin(), lanes.end(), [](const std::string& lane) {
    return absl::StartsWith(lane, "tcp/");
  });
}

Transport UcxTransport() {
  return {
      "ucx",
      SocketKind::kTcp,
      NoSupport,
      DialTcp,
      MakeUcxChannel,
      [](const ReceiverOptions& options) { return options.ucx && !options.tcp_address.empty(); },
      ListenUcx,
      MakeUcxSource};
}

}  // namespace baton::transport
