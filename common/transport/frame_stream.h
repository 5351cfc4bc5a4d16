// SPDX-License-Identifier: Apache-2.0
// Frames and payload on a non-blocking stream socket.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"
#include "common/base/unique_fd.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame.h"

namespace baton::transport {

// Where the payload of a frame lands.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // Fills `out` with the places of the next bytes, in order; returns how many
  // it filled, at least one. The places stay valid until Advance or until the
  // loop runs another handler.
  virtual size_t Targets(std::span<iovec> out) = 0;
  // `bytes` of these places are filled.
  virtual void Advance(size_t bytes) = 0;
};

// Belongs to its loop's thread. Must not be destroyed inside its own handler
// (EventLoop::Defer is the way).
class FrameStream {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // A frame whose payload goes to the sink that is returned; none is needed
    // without a payload. `passed`: a descriptor that came along. An error
    // closes the stream with it.
    virtual absl::StatusOr<PayloadSink*> OnFrame(const baton::v1::HandoffFrame& frame,
                                                 uint32_t payload_bytes, UniqueFd passed) = 0;
    virtual absl::Status OnPayloadEnd() = 0;
    // All frames that one wake-up brought have been handled.
    virtual void OnBatchEnd() {}
    // All that was queued is written.
    virtual void OnDrained() {}
    // The stream ended by itself: INVALID_ARGUMENT for a peer that breaks the
    // protocol, UNAVAILABLE for one that is gone. Once; not after Close.
    virtual void OnClosed(const absl::Status& reason) = 0;
  };

  // `loop` and `handler` must outlive the stream.
  FrameStream(EventLoop* loop, UniqueFd socket, Handler* handler);
  ~FrameStream();
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Queues a frame without payload; `pass` is sent along (Unix sockets only).
  void Send(const baton::v1::HandoffFrame& frame, int pass = -1);

  // Queues a frame with the bytes of `payload` behind it, which must stay until
  // `sent` runs or OwnPayload was called. `sent` never runs inside this call.
  void SendWithPayload(const baton::v1::HandoffFrame& frame,
                       std::span<const std::span<const std::byte>> payload, EventLoop::Task sent);

  // Copies what is unsent of the payload in the queue, so that its source may
  // go at once; its `sent` runs as if the payload were out.
  void OwnPayload();

  // Nothing is queued. False once closed.
  bool idle() const { return open_ && out_.empty(); }
  bool open() const { return open_; }
  void Close();

 private:
  struct Outgoing {
    std::string head;
    std::vector<std::span<const std::byte>> payload;
    size_t next_span = 0;  // first span that is not wholly sent
    size_t offset = 0;     // sent of head, then of that span
    bool head_sent = false;
    int pass = -1;
    EventLoop::Task sent;
    std::vector<std::byte> owned;
  };

  void OnEvents(uint32_t events);
  void ReadAll();
  // Bytes read; 0 at the end of the stream; -1 with errno.
  ssize_t ReadIntoBuffer();
  ssize_t ReadIntoSink();
  absl::Status TakePassed(msghdr& message);
  absl::Status ParseBuffered();
  absl::Status FeedSinkFromBuffer();
  absl::Status EndPayloadIfComplete();
  void Flush();
  ssize_t WriteSome(Outgoing& item);
  static void AdvanceOutgoing(Outgoing& item, size_t bytes);
  void UpdateWatch();
  void Fail(const absl::Status& reason);

  EventLoop* const loop_;
  Handler* const handler_;
  UniqueFd socket_;
  uint64_t watch_ = 0;
  bool open_ = true;
  bool want_write_ = false;

  std::vector<std::byte> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  UniqueFd passed_;
  PayloadSink* sink_ = nullptr;
  uint32_t payload_left_ = 0;
  absl::Status read_error_;
  baton::v1::HandoffFrame frame_;

  std::deque<Outgoing> out_;
  size_t out_bytes_ = 0;  // of heads
};

}  // namespace baton::transport
