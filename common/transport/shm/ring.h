// SPDX-License-Identifier: Apache-2.0
// A ring of bytes in shared memory: the sender allocates and writes, the
// receiver only reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace baton::transport {

// Owns a mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The sender's end. Ranges are given out in order and come back in order; none
// wraps, so some bytes at the end may be left out.
class Ring {
 public:
  // The memory is sealed: its size can never change under the reader's feet.
  // RESOURCE_EXHAUSTED: no memory or descriptor.
  static absl::StatusOr<Ring> Make(size_t bytes);

  int fd() const { return fd_.get(); }
  size_t size() const { return mapping_.size(); }
  // A range of `bytes` (> 0); none while there is no room.
  std::optional<uint64_t> Allocate(size_t bytes);
  bool HasRoom(size_t bytes) const { return Place(bytes).has_value(); }
  std::span<std::byte> At(uint64_t offset, size_t bytes) {
    return {mapping_.data() + offset, bytes};
  }
  // Frees the `bytes` that were allocated first. INVALID_ARGUMENT: that is not
  // a whole number of ranges.
  absl::Status Release(uint64_t bytes);
  size_t outstanding() const { return ranges_.size(); }

 private:
  struct Range {
    uint64_t begin, end;
  };

  Ring(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  std::optional<uint64_t> Place(size_t bytes) const;

  UniqueFd fd_;
  Mapping mapping_;
  std::deque<Range> ranges_;  // given out, oldest first
};

// The receiver's end. INVALID_ARGUMENT: `fd` is not sealed memory of `bytes`.
absl::StatusOr<Mapping> MapRing(UniqueFd fd, uint64_t bytes);

}  // namespace baton::transport
