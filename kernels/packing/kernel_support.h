// SPDX-License-Identifier: Apache-2.0
// What kernels need whatever their instruction set. All of it is always
// inlined: a copy out of line would carry the instructions of one file into
// the others.
#pragma once

#include <cstddef>
#include <cstdint>

#define BATON_INLINE static inline __attribute__((always_inline))

namespace baton::kernels {

// Spreads the prefetch of `next` over the groups of one Multiply.
class Prefetcher {
 public:
  __attribute__((always_inline)) Prefetcher(const std::byte* next, size_t bytes, uint32_t groups)
      : next_(next),
        lines_(next == nullptr || groups == 0
                   ? 0
                   : static_cast<uint32_t>((bytes / kLine + groups - 1) / groups)) {}
  __attribute__((always_inline)) void Step() {
    for (uint32_t i = 0; i < lines_; ++i, next_ += kLine) __builtin_prefetch(next_);
  }

 private:
  static constexpr uint32_t kLine = 64;
  const std::byte* next_;
  uint32_t lines_;
};

}  // namespace baton::kernels
