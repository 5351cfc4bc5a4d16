// SPDX-License-Identifier: Apache-2.0
// Where packed weights go: memory, or a file piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "common/model/aligned_buffer.h"

namespace baton::model {

// Most bytes of one piece, unless a single panel is larger.
inline constexpr size_t kPackPieceBytes = size_t{4} << 20;

// Takes bytes from front to back. Not thread-safe; the memory of a piece may
// be filled by several threads.
class PackSink {
 public:
  virtual ~PackSink() = default;
  // Memory for the next `bytes`, a multiple of 64, aligned to 64; valid until
  // Commit.
  virtual std::span<std::byte> Room(size_t bytes) = 0;
  // Takes what Room gave. After an error nothing else may be called.
  virtual absl::Status Commit() = 0;
};

class MemorySink final : public PackSink {
 public:
  explicit MemorySink(size_t bytes) : memory_(std::make_shared<AlignedBuffer>(bytes)) {}

  std::span<std::byte> Room(size_t bytes) override {
    const std::span<std::byte> room(memory_->data() + filled_, bytes);
    filled_ += bytes;
    return room;
  }
  absl::Status Commit() override { return absl::OkStatus(); }

  // All of the memory.
  std::shared_ptr<const std::byte> memory() const { return {memory_, memory_->data()}; }

 private:
  std::shared_ptr<AlignedBuffer> memory_;
  size_t filled_ = 0;
};

}  // namespace baton::model
