// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ring_space.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton::transport {

std::optional<uint64_t> RingSpace::Place(size_t bytes) const {
  if (ranges_.empty()) return bytes <= size() ? std::optional<uint64_t>(0) : std::nullopt;
  const uint64_t head = ranges_.back().end;
  const uint64_t tail = ranges_.front().begin;
  if (ranges_.back().begin >= tail) {  // in use: [tail, head)
    if (size() - head >= bytes) return head;
    if (bytes <= tail) return 0;
    return std::nullopt;
  }
  // In use: [tail, size) and [0, head).
  if (tail - head >= bytes) return head;
  return std::nullopt;
}

std::optional<uint64_t> RingSpace::Allocate(size_t bytes) {
  const std::optional<uint64_t> begin = Place(bytes);
  if (begin) ranges_.push_back({*begin, *begin + bytes});
  return begin;
}

absl::Status RingSpace::Release(uint64_t bytes) {
  while (bytes > 0) {
    if (ranges_.empty() || ranges_.front().end - ranges_.front().begin > bytes) {
      return absl::InvalidArgumentError("the receiver says it consumed what it was not sent");
    }
    bytes -= ranges_.front().end - ranges_.front().begin;
    ranges_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status CheckRingBytes(uint64_t bytes, uint64_t limit) {
  if (bytes > 0 && bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ring_bytes is ", bytes, ", the limit is ", limit));
}

void StageInRing(RingSpace& space, std::byte* ring, baton::v1::Put& put,
                 std::span<const std::span<const std::byte>> sources) {
  const uint64_t offset = space.Allocate(put.bytes()).value();
  std::byte* to = ring + offset;
  for (const auto& source : sources) {
    std::memcpy(to, source.data(), source.size());
    to += source.size();
  }
  put.set_ring_offset(offset);
}

absl::StatusOr<const std::byte*> LocateInRing(std::span<const std::byte> ring,
                                              const baton::v1::Put& put, uint32_t payload_bytes) {
  if (payload_bytes != 0) {
    return absl::InvalidArgumentError("bytes behind a put whose bytes are in the ring");
  }
  if (put.bytes() > ring.size() || put.ring_offset() > ring.size() - put.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "put of ", put.bytes(), " bytes at ", put.ring_offset(), " of a ring of ", ring.size()));
  }
  return ring.data() + put.ring_offset();
}

}  // namespace baton::transport
