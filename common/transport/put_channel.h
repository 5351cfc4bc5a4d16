// SPDX-License-Identifier: Apache-2.0
// What a transport is: how to dial, how to listen, and how the bytes of a Put
// travel. All else is the same for all transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"
#include "common/base/unique_fd.h"
#include "common/kv/layout.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame_stream.h"
#include "common/transport/kv_transport.h"

namespace baton::transport {

class Ticket;

// How the bytes of Puts leave a sender on one connection. Loop thread.
class PutChannel {
 public:
  using Sources = std::span<const std::span<const std::byte>>;

  virtual ~PutChannel() = default;
  // The receiver's answer to the hello. `ready`, once: bytes can travel, or why
  // not (never inside this call, for then the channel goes). Nothing is staged
  // before.
  virtual void Welcomed(const baton::v1::HandoffWelcome& /*welcome*/, Done ready) {
    Done(std::move(ready))(absl::OkStatus());
  }
  // How many bytes a frame should carry at most (but at least one slice).
  virtual size_t frame_bytes() const = 0;
  // Whether Send has room for `bytes` now; if not, there is after Consumed.
  virtual bool CanSend(size_t bytes) const = 0;
  // Takes the bytes of `put` up; where they are copied, they are in the cache
  // for the checksum that is taken of them next.
  virtual void Stage(baton::v1::Put& put, Sources sources) = 0;
  // Sends `frame`, the Put that was staged. `sent`: the sources may be reused.
  // It never runs inside this call.
  virtual void Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
                    EventLoop::Task sent) = 0;
  // Sends a frame that must not arrive before the Puts that were sent so far.
  virtual void SendBehindPuts(const baton::v1::HandoffFrame& frame, FrameStream* stream) {
    stream->Send(frame);
  }
  // Whether bytes in the pool (SenderOptions::pool) can be sent as they are there; else
  // they are brought to the host first.
  virtual bool takes_pool() const { return false; }
  // As Stage, for sources whose bytes are in the pool. REQUIRES: takes_pool().
  virtual void StageInPool(baton::v1::Put& /*put*/, Sources /*places*/) {}
  // The receiver is through with `bytes` more. INVALID_ARGUMENT: more than it was sent.
  virtual absl::Status Consumed(uint64_t bytes) = 0;
  // So many more Puts' bytes are where the receiver reads them, it says.
  // INVALID_ARGUMENT: more than are on their way.
  virtual absl::Status Arrived(const baton::v1::Arrived& /*arrived*/) {
    return absl::InvalidArgumentError("arrived, on a connection that does not ask");
  }
  // A frame about the way of the bytes itself, which the receiver has sent.
  virtual absl::Status OnPath(const baton::v1::NcclPath& /*path*/) {
    return absl::InvalidArgumentError("a frame that has no place here");
  }
  virtual absl::Status OnIpcPath(const baton::v1::IpcPath& /*path*/) {
    return absl::InvalidArgumentError("a frame that has no place here");
  }
  // Whether it takes care itself that `ready` is not waited for without end; else
  // the time to connect is all there is.
  virtual bool bounds_opening() const { return false; }
  // Where bytes do not go by the socket: their way fails, the socket goes on
  // (fault injection).
  virtual void LosePath() {}
};

// Slices in a row that the receiver copies by itself from memory of the sender, or
// whose checksums it takes there alone (`to` is null), as they have landed before.
struct PullRun {
  size_t from;    // in the sender's memory
  std::byte* to;  // of this worker's device
  uint32_t slices;
};

// Where a receiver finds the bytes of Puts on one connection. Loop thread.
class PutSource {
 public:
  virtual ~PutSource() = default;
  // The bytes of `put`; nullptr: they follow on the stream, all of them.
  // INVALID_ARGUMENT: they stand where no Put can be.
  virtual absl::StatusOr<const std::byte*> Locate(const baton::v1::Put& put,
                                                  uint32_t payload_bytes) const = 0;
  // Frames about the way of the bytes itself. INVALID_ARGUMENT: they have no place
  // here, or ask for what no sender of ours would.
  virtual absl::Status OnPath(const baton::v1::NcclPath& /*path*/) { return NoPlace(); }
  virtual absl::Status OnExpect(const baton::v1::NcclExpect& /*expect*/) { return NoPlace(); }
  // Whether the receiver is to copy the bytes of `put` by itself: PlanPull and Pull
  // instead of Locate.
  virtual bool Pulls(const baton::v1::Put& /*put*/, uint32_t /*payload_bytes*/) const {
    return false;
  }
  // It cannot any more; such puts are dropped, as they come again.
  virtual bool lost_path() const { return false; }
  // Fills in what is to be copied for `put`, which has passed ticket.Check.
  // INVALID_ARGUMENT: it names what no Put can.
  virtual absl::Status PlanPull(const baton::v1::Put& /*put*/, const Ticket& /*ticket*/,
                                std::vector<PullRun>& /*runs*/) const {
    return NoPlace();
  }
  // `done`, on the loop, in order of the calls and never inside of one: the runs are
  // copied, with the CRC-32C of each slice; or they are not, and nothing writes any
  // more. Not called when the loop has ended before.
  using Pulled = std::function<void(const absl::StatusOr<std::vector<uint32_t>>& checksums)>;
  virtual void Pull(std::vector<PullRun> /*runs*/, Pulled /*done*/) {}
  // Whether the sender waits to hear what has been copied.
  virtual bool reports_consumed() const = 0;

 private:
  static absl::Status NoPlace() {
    return absl::InvalidArgumentError("a frame that has no place on this transport");
  }
};

// A socket that listens, and what peers dial to reach it. `on_close` undoes
// what listening left behind.
struct Listener {
  static constexpr int kBacklog = 128;  // connections that nobody has taken yet

  Listener() = default;
  Listener(Listener&& other) noexcept
      : socket(std::move(other.socket)),
        endpoint(std::move(other.endpoint)),
        on_close(std::exchange(other.on_close, nullptr)) {}
  Listener& operator=(Listener&&) = delete;
  ~Listener() {
    if (on_close) on_close();
  }

  UniqueFd socket;
  Endpoint endpoint;
  std::function<void()> on_close;
};

// What a channel is made from. `lost`: its connection is of no more use, for a
// reason that the socket does not know of; `room`: CanSend may say another thing
// than before. Neither is called inside the channel's own calls, nor once it is
// gone.
struct ChannelContext {
  const SenderOptions& options;
  EventLoop* loop;
  // Plain tcp is tried when this connection comes to nothing.
  bool tcp_follows;
  std::function<void(const absl::Status&)> lost;
  std::function<void(const baton::v1::HandoffFrame&)> send;
  std::function<void()> room;
  const kv::KvLayout& wire;  // of the slices that travel
  bool converts;             // they are not as they stand in blocks
  // The put of this transfer that was sent last is to be sent anew, from the host.
  std::function<void(uint64_t transfer)> again;
};

struct SourceContext {
  const ReceiverOptions& options;
  EventLoop* loop;
  std::function<void(const absl::Status&)> lost;  // as a channel's
  std::function<void(const baton::v1::HandoffFrame&)> send;
  const kv::KvLayout& layout;  // of this worker's blocks
  bool converts;               // what arrives is not as it will stand in them
};

struct OutgoingChannel {
  std::unique_ptr<PutChannel> puts;
  UniqueFd pass;  // goes to the receiver with the hello
};

// Transports of one kind share the receiver's socket; the hello says which of
// them a connection is for.
enum class SocketKind : uint8_t { kUnix, kTcp };

// What a transport needs of this process, kept for as long as it is.
using Support = std::shared_ptr<const void>;

struct Transport {
  const char* name;
  SocketKind socket;
  // Before anything else, for a process that is to use it on `device` (what --device
  // says); the answer is held as long as it does. May take its time. UNAVAILABLE:
  // one sentence why it cannot work here.
  absl::StatusOr<Support> (*prepare)(const std::string& device);
  // Begins a non-blocking connect. UNAVAILABLE, INVALID_ARGUMENT (the address).
  absl::StatusOr<UniqueFd> (*dial)(const std::string& address);
  // Fills its fields of `hello`.
  absl::StatusOr<OutgoingChannel> (*make_channel)(const ChannelContext& context,
                                                  baton::v1::HandoffHello& hello);
  bool (*listens)(const ReceiverOptions& options);
  absl::StatusOr<Listener> (*listen)(const ReceiverOptions& options);
  // `passed`: the descriptor that came with the hello, if any. Fills its fields
  // of `welcome`. INVALID_ARGUMENT: what the hello promises is not there.
  // UNAVAILABLE: not here, but another transport may do.
  absl::StatusOr<std::unique_ptr<PutSource>> (*make_source)(const SourceContext& context,
                                                            const baton::v1::HandoffHello& hello,
                                                            UniqueFd passed,
                                                            baton::v1::HandoffWelcome& welcome);
};

// For `prepare` of those that need none.
inline absl::StatusOr<Support> NoSupport(const std::string& /*device*/) { return Support(); }

// UNAVAILABLE: why cuda_ipc cannot work on the device.
absl::Status NoPool(const std::string& device);

// All transports that are built in, best first.
std::span<const Transport> Transports();
const Transport* FindTransport(const std::string& name);  // nullptr: unknown

}  // namespace baton::transport
