// SPDX-License-Identifier: Apache-2.0
// A ring of bytes in shared memory: the sender allocates and writes, the
// receiver only reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/transport/ring_space.h"

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

// The sender's end: memory and the book of it (ring_space.h).
class Ring {
 public:
  // The memory is sealed: its size can never change under the reader's feet.
  // RESOURCE_EXHAUSTED: no memory or descriptor.
  static absl::StatusOr<Ring> Make(size_t bytes);

  int fd() const { return fd_.get(); }
  size_t size() const { return mapping_.size(); }
  std::byte* data() { return mapping_.data(); }
  RingSpace& space() { return space_; }
  const RingSpace& space() const { return space_; }
  std::span<std::byte> At(uint64_t offset, size_t bytes) {
    return {mapping_.data() + offset, bytes};
  }

 private:
  Ring(UniqueFd fd, Mapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)), space_(mapping_.size()) {}

  UniqueFd fd_;
  Mapping mapping_;
  RingSpace space_;
};

// The receiver's end. INVALID_ARGUMENT: `fd` is not sealed memory of `bytes`.
absl::StatusOr<Mapping> MapRing(UniqueFd fd, uint64_t bytes);

}  // namespace baton::transport
