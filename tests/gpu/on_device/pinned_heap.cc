// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/on_device/pinned_heap.h"

#include <bit>

namespace baton::gpu {

void PinnedHeap::Adopt(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  begin_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

void* PinnedHeap::Take(size_t bytes) {
  const size_t size = std::bit_ceil(bytes + kHeader), kind = std::countr_zero(size);
  const std::lock_guard lock(mutex_);
  if (begin_ == nullptr || kind >= kClasses) return nullptr;
  std::byte* piece = nullptr;
  if (free_[kind] != nullptr) {
    piece = reinterpret_cast<std::byte*>(free_[kind]) - kHeader;
    free_[kind] = free_[kind]->next;
  } else if (size <= bytes_ - used_) {
    piece = begin_ + used_;
    used_ += size;
  } else {
    return nullptr;
  }
  *reinterpret_cast<size_t*>(piece) = kind;
  return piece + kHeader;
}

bool PinnedHeap::GiveBack(void* memory) {
  auto* const at = static_cast<std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  if (begin_ == nullptr || at < begin_ || at >= begin_ + bytes_) return false;
  const size_t kind = *reinterpret_cast<size_t*>(at - kHeader);
  auto* const piece = reinterpret_cast<Free*>(at);
  piece->next = free_[kind];
  free_[kind] = piece;
  return true;
}

}  // namespace baton::gpu
