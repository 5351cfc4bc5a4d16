// SPDX-License-Identifier: Apache-2.0
// Memory for weights and activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace baton::model {

inline constexpr size_t kCacheLine = 64;  // bytes
inline constexpr size_t kCacheLineFloats = kCacheLine / sizeof(float);

// Uninitialized memory, aligned to 64 bytes, or to 2 MiB with huge pages asked
// for when it is that large. Movable; empty when default-constructed.
class AlignedBuffer final {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc: sizes are checked against the memory budget before.
  explicit AlignedBuffer(size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  float* floats() { return reinterpret_cast<float*>(data_.get()); }
  const float* floats() const { return reinterpret_cast<const float*>(data_.get()); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace baton::model
