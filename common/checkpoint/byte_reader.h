// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace baton::checkpoint {

// Reads little-endian values from the front of a span. A read that does not
// fit returns false and moves nothing.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  [[nodiscard]] bool Read(T& value) {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }

  // The next `length` bytes, whatever they are.
  [[nodiscard]] bool ReadBytes(uint64_t length, std::string_view& text) {
    if (length > remaining()) return false;
    text = {reinterpret_cast<const char*>(bytes_.data()) + offset_, static_cast<size_t>(length)};
    offset_ += text.size();
    return true;
  }

  // A string with its 64-bit length in front.
  [[nodiscard]] bool ReadString(std::string_view& text) {
    uint64_t length = 0;
    if (!Read(length)) return false;
    if (ReadBytes(length, text)) return true;
    offset_ -= sizeof(length);
    return false;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
};

}  // namespace baton::checkpoint
