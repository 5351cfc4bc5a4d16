// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ring_channel.h"

#include <algorithm>
#include <span>
#include <utility>

namespace baton::transport {

absl::StatusOr<const std::byte*> LocateOnRingOrSocket(std::span<const std::byte> ring,
                                                      const baton::v1::Put& put,
                                                      uint32_t payload_bytes) {
  if (payload_bytes != 0 && payload_bytes == put.bytes()) return nullptr;
  return LocateInRing(ring, put, payload_bytes);
}

RingChannel::RingChannel(size_t ring_bytes, size_t frame_bytes, EventLoop* loop)
    : space_(ring_bytes), frame_bytes_(std::min(frame_bytes, ring_bytes / 4)), loop_(loop) {}

void RingChannel::Stage(baton::v1::Put& put, Sources sources) {
  StageInRing(space_, staged_, put, sources);
}

void RingChannel::Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
                       EventLoop::Task sent) {
  held_.push_back({frame, stream, /*is_put=*/true});
  if (!SendBytes(frame.put())) SendHeldInline();
  loop_->Defer(std::move(sent));
}

void RingChannel::SendBehindPuts(const baton::v1::HandoffFrame& frame, FrameStream* stream) {
  if (held_.empty()) return stream->Send(frame);
  held_.push_back({frame, stream, /*is_put=*/false});
}

void RingChannel::PutArrived() {
  bool taken = false;
  while (!held_.empty() && !(held_.front().is_put && taken)) {
    taken |= held_.front().is_put;
    held_.front().stream->Send(held_.front().frame);
    held_.pop_front();
  }
}

void RingChannel::SendHeldInline() {
  while (!held_.empty()) {
    const Held held = std::move(held_.front());
    held_.pop_front();
    if (!held.is_put) {
      held.stream->Send(held.frame);
      continue;
    }
    const baton::v1::Put& put = held.frame.put();
    const std::span<const std::byte> bytes(staged_ + put.ring_offset(), put.bytes());
    held.stream->SendWithPayload(held.frame, {&bytes, 1}, [] {});
  }
}

}  // namespace baton::transport
