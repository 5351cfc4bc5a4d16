// SPDX-License-Identifier: Apache-2.0
// One hand-off on the sender: what its writer asked for, cut into frames.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/kv/convert/layer_converter.h"
#include "common/kv/layout.h"
#include "common/transport/event_loop.h"
#include "common/transport/kv_transport.h"
#include "common/transport/slice_digest.h"

namespace baton::transport {

class SenderLink;

// How a sender's blocks travel.
struct OutgoingFormat {
  OutgoingFormat(const kv::KvLayout& blocks, const kv::KvLayout& on_wire,
                 std::optional<kv::LayerConverter> from_blocks)
      : layout(blocks), wire(on_wire), converter(from_blocks), joiner(on_wire.LayerBytes()) {}

  const kv::KvLayout layout;                          // of the blocks
  const kv::KvLayout wire;                            // of the bytes of Puts
  const std::optional<kv::LayerConverter> converter;  // when they differ
  const CrcJoiner joiner;                             // of slices on the wire
};

// Belongs to the sender's thread, but for the two atomics.
//
// Invariant: every callback runs exactly once; after End none is left, and a
// call that comes later ends at once with the status of End.
class OutgoingTransfer {
 public:
  // `format` must outlive the transfer.
  OutgoingTransfer(ReserveRequest request, const OutgoingFormat* format, Done granted);

  // Bytes put on the wire, and the transport's name once it is known.
  std::atomic<uint64_t> bytes{0};
  std::atomic<const char*> transport{""};
  // Of the writer's prefers_pool().
  std::atomic<bool> prefers_pool{false};

  const ReserveRequest& request() const { return request_; }
  bool ended() const { return ended_; }
  bool granted() const { return !ticket_id_.empty(); }
  absl::Duration lease() const { return lease_; }

  // INVALID_ARGUMENT: range and sources do not fit the layout. The caller ends
  // the transfer with it, so that the receiver hears of it too.
  absl::Status AddPut(const PutRange& range, PutSources sources, Done done);
  // FAILED_PRECONDITION: a second commit.
  absl::Status AddCommit(const CommitState& state, Done done);

  // INVALID_ARGUMENT: the grant is not one (a peer that breaks the protocol).
  absl::Status Grant(const baton::v1::TicketGranted& granted);

  // The next frame, if the transfer has one to send now: puts in order, each
  // in frames of at most `frame_bytes` (or one slice), then the commit.
  enum class Next { kNothing, kPut, kCommit };
  Next Peek(size_t frame_bytes);
  // Of the put that Peek found.
  size_t put_bytes() const { return frame_slices_ * format_->wire.LayerBytes(); }
  // Fills in the put, but for its checksum, and `sources`, which last until
  // PutSent. INVALID_ARGUMENT: it goes beyond the prompt's blocks.
  using Sources = std::span<const std::span<const std::byte>>;
  absl::Status PreparePut(baton::v1::Put& put, Sources& sources);
  // Whether the bytes of the put that Peek found are in the pool, not on the host.
  bool in_pool() const { return !puts_.front().sources.checksums.empty(); }
  // The places of its call, and that their bytes are on the host from now on.
  const std::vector<std::span<const std::byte>>& places() const {
    return puts_.front().sources.spans;
  }
  void BroughtToHost();
  // Takes the prepared put off: its checksum, its slices in the digest.
  void TakePut(baton::v1::Put& put, Sources sources);
  void TakeCommit(baton::v1::HandoffFrame& frame);
  // The put that was taken last is out: its sources may go.
  void PutSent();
  // It is to be sent anew.
  void PutLost();
  // A Put that only renews the lease.
  void FillRenewal(baton::v1::HandoffFrame& frame) const;

  void End(const absl::Status& status);

  // Bookkeeping of the link that carries the transfer.
  SenderLink* link = nullptr;
  uint64_t id = 0;
  bool reserve_sent = false;
  bool queued = false;     // waits for its turn
  bool in_flight = false;  // a frame's bytes are on their way
  bool waits_for_host = false;
  uint64_t frames_sent = 0;
  uint64_t deadline_timer = 0, renewal_timer = 0;

 private:
  struct PutCall {
    PutRange range;
    PutSources sources;
    Done done;
    uint32_t block, layer;  // of the first slice that no frame has taken
  };
  struct CommitCall {
    CommitState state;
    Done done;
    bool taken = false;
  };

  void DropFinishedPuts();
  // Of the put that Peek found.
  size_t FirstSource() const;
  void CountSlice(uint32_t block, uint32_t layer, uint32_t crc);
  void FillTicket(baton::v1::Put& put) const;
  // `sources` as they travel, in memory of the transfer.
  Sources Converted(Sources sources);

  const ReserveRequest request_;
  const OutgoingFormat* const format_;
  Done granted_;
  std::deque<PutCall> puts_;
  std::optional<CommitCall> commit_;

  std::string ticket_id_;
  uint64_t epoch_ = 0;
  uint32_t first_block_ = 0, block_count_ = 0;
  absl::Duration lease_;

  // The frame that Peek found: `frame_blocks_` x `frame_layers_` slices.
  uint32_t frame_blocks_ = 0, frame_layers_ = 0;
  size_t frame_slices_ = 0;
  uint32_t taken_block_ = 0, taken_layer_ = 0;  // where the frame that was taken begins
  size_t taken_bytes_ = 0;
  // Of a frame whose slices had to be converted.
  std::vector<std::byte> converted_;
  std::vector<std::span<const std::byte>> converted_slices_;

  std::vector<bool> counted_;
  uint64_t slices_ = 0;
  uint64_t digest_ = 0;

  bool ended_ = false;
  absl::Status end_status_;
};

}  // namespace baton::transport
