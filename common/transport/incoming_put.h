// SPDX-License-Identifier: Apache-2.0
// The bytes of one Put on their way into a ticket's blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/transport/frame_stream.h"
#include "common/transport/layout_info.h"
#include "common/transport/slice_digest.h"
#include "common/transport/ticket.h"

namespace baton::transport {

// The only code that writes into a receiver's blocks, for every transport.
// Checksums are of the bytes as they travelled; a slice of another KV type is
// converted when it is whole.
// Reused for one Put after another; belongs to the receiver's thread.
class IncomingPut : public PayloadSink {
 public:
  explicit IncomingPut(IncomingFormat format);

  // `put` has passed ticket->Check. The ticket must live until Finish or Drop.
  void Begin(Ticket* ticket, const baton::v1::Put& put);
  // The next payload is thrown away.
  void BeginDiscard();
  // The rest of this Put is thrown away: its ticket has ended.
  void Drop(const Ticket* ticket);

  // Copies the whole Put from `bytes`, which the peer may change meanwhile: each byte is
  // read once, and checksums are taken of what has landed.
  void CopyFrom(std::span<const std::byte> bytes);

  size_t Targets(std::span<iovec> out) override;
  void Advance(size_t bytes) override;

  // After the last byte. FAILED_PRECONDITION: the checksum is not the Put's,
  // or a slice came again with other content. OK for what was dropped.
  absl::Status Finish();
  const Ticket* ticket() const { return ticket_; }

 private:
  // Where the bytes of a slice are gathered: its place in the block, or memory
  // to convert them from. nullptr: the slice has landed already.
  std::byte* Place(uint32_t block, uint32_t layer);
  void NextSlice();

  const IncomingFormat format_;
  const size_t slice_bytes_;  // on the wire
  const CrcJoiner joiner_;
  std::vector<std::byte> scratch_;
  // Slices that are to be converted, [staged_slices_]: as many as a batch can
  // touch.
  const size_t staged_slices_;
  std::vector<std::byte> staged_;

  Ticket* ticket_ = nullptr;
  uint32_t layer_begin_ = 0, layer_end_ = 0, block_begin_ = 0, block_end_ = 0;
  uint32_t expected_crc_ = 0;
  uint32_t block_ = 0, layer_ = 0;  // the slice being filled
  size_t offset_ = 0;               // filled of it
  uint32_t slice_crc_ = 0;
  uint32_t put_crc_ = 0;
  absl::Status error_;
};

}  // namespace baton::transport
