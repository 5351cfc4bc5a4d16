// SPDX-License-Identifier: Apache-2.0
// Memory for operator new that the host and a GPU see under one address.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace baton::gpu {

// Hands out pieces of one run of memory, in sizes of powers of two; freed pieces
// are used again for their size. Thread safety: all threads.
class PinnedHeap final {
 public:
  // Gives it `bytes` at `memory`, aligned to 256 bytes, for good.
  void Adopt(void* memory, size_t bytes);
  // Null: nothing adopted yet, or it is used up.
  void* Take(size_t bytes);
  // False: not from here.
  bool GiveBack(void* memory);

 private:
  static constexpr size_t kHeader = 32;  // holds the piece's class
  static constexpr size_t kClasses = 40;

  struct Free {
    Free* next;
  };

  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  size_t bytes_ = 0, used_ = 0;
  std::array<Free*, kClasses> free_{};
};

}  // namespace baton::gpu
