// SPDX-License-Identifier: Apache-2.0
// Which parts of a ring of bytes are in use: the sender's book, for every
// transport that has a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"

namespace baton::transport {

// Ranges are given out in order and come back in order; none wraps, so some
// bytes at the end may be left out.
class RingSpace {
 public:
  explicit RingSpace(size_t bytes) : size_(bytes) {}

  size_t size() const { return size_; }
  // A range of `bytes` (> 0); none while there is no room.
  std::optional<uint64_t> Allocate(size_t bytes);
  bool HasRoom(size_t bytes) const { return Place(bytes).has_value(); }
  // Frees the `bytes` that were allocated first. INVALID_ARGUMENT: that is not
  // a whole number of ranges.
  absl::Status Release(uint64_t bytes);
  size_t outstanding() const { return ranges_.size(); }

 private:
  struct Range {
    uint64_t begin, end;
  };

  std::optional<uint64_t> Place(size_t bytes) const;

  size_t size_;
  std::deque<Range> ranges_;  // given out, oldest first
};

// INVALID_ARGUMENT: a hello asks for a ring of no bytes, or of more than `limit`.
absl::Status CheckRingBytes(uint64_t bytes, uint64_t limit);

// Gathers `sources` where `space` has room for them in `ring`, and tells `put`
// where. REQUIRES: space.HasRoom(put.bytes()), which is what they hold.
void StageInRing(RingSpace& space, std::byte* ring, baton::v1::Put& put,
                 std::span<const std::span<const std::byte>> sources);

// Where in the receiver's view of `ring` the bytes of `put` stand.
// INVALID_ARGUMENT: outside of it, or bytes came behind the frame.
absl::StatusOr<const std::byte*> LocateInRing(std::span<const std::byte> ring,
                                              const baton::v1::Put& put, uint32_t payload_bytes);

}  // namespace baton::transport
