// SPDX-License-Identifier: Apache-2.0
// A sender's way for bytes that go beside the socket into a ring of the receiver's.
#pragma once

#include <cstddef>
#include <deque>

#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame_stream.h"
#include "common/transport/put_channel.h"
#include "common/transport/ring_space.h"

namespace baton::transport {

// A receiver makes a ring for each connection, of at most so many bytes; nccl takes
// as much of the GPU and pins it on either side.
inline constexpr uint64_t kMostReceiverRing = uint64_t{64} << 20;

// For the receiver of a RingChannel: where in its `ring` the bytes of `put` stand, or
// null where the sender has lost the way and they follow the frame. Errors as
// LocateInRing.
absl::StatusOr<const std::byte*> LocateOnRingOrSocket(std::span<const std::byte> ring,
                                                      const baton::v1::Put& put,
                                                      uint32_t payload_bytes);

// Slices are gathered in a ring of the sender's with the offsets of the receiver's,
// so sources are free at once. A put's frame waits until its bytes have arrived,
// and what must not overtake it waits with it. Bytes stay staged until the receiver
// is through with them: when the way is lost, those of the waiting frames, and all
// that follow, go behind their frames on the socket.
class RingChannel : public PutChannel {
 public:
  size_t frame_bytes() const override { return frame_bytes_; }
  bool CanSend(size_t bytes) const override { return space_.HasRoom(bytes); }
  void Stage(baton::v1::Put& put, Sources sources) override;
  void Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
            EventLoop::Task sent) override;
  void SendBehindPuts(const baton::v1::HandoffFrame& frame, FrameStream* stream) override;
  absl::Status Consumed(uint64_t bytes) override { return space_.Release(bytes); }

 protected:
  // A frame carries `frame_bytes`, or a quarter of the ring.
  RingChannel(size_t ring_bytes, size_t frame_bytes, EventLoop* loop);

  // Where bytes are gathered from here on; before the first Stage, and never while
  // frames wait. What was gathered before stays where it was.
  void SetRing(std::byte* ring) { staged_ = ring; }

  // Sends the staged bytes of `put`; PutArrived follows. False: there is no way now.
  virtual bool SendBytes(const baton::v1::Put& put) = 0;

  // The bytes of the oldest put that waits have arrived.
  void PutArrived();
  // The way is lost: what waits goes over the socket, with its bytes.
  void SendHeldInline();

 private:
  // A frame that waits for the bytes before it.
  struct Held {
    baton::v1::HandoffFrame frame;
    FrameStream* stream;
    bool is_put;
  };

  RingSpace space_;  // of the sender's ring and of the receiver's alike
  const size_t frame_bytes_;
  EventLoop* const loop_;
  std::byte* staged_ = nullptr;
  std::deque<Held> held_;
};

}  // namespace baton::transport
