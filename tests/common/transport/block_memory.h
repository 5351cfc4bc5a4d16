// SPDX-License-Identifier: Apache-2.0
// Where the blocks of transports' tests stand: on the heap, or for cuda_ipc in memory
// of the emulated GPU that other processes can map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/kv/device_pool.h"

namespace baton::transport {

// The emulated GPU's memory is host memory: the pool is its own arena, so that what
// lands in it can be looked at. One for each process, also for children of a fork.
class BlockMemory {
 public:
  static BlockMemory& Get();

  // For blocks from here on.
  void UsePool(bool use) { use_pool_ = use; }
  bool uses_pool() const { return use_pool_; }
  // Null: the heap is in use.
  const kv::DevicePool* pool();

  // Aborts the test's process when the pool is full. Any thread.
  void* Allocate(size_t bytes);
  void Release(void* memory, size_t bytes);

 private:
  bool use_pool_ = false;
};

template <typename T>
struct BlockAllocator {
  using value_type = T;

  BlockAllocator() = default;
  template <typename U>
  BlockAllocator(const BlockAllocator<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    return static_cast<T*>(BlockMemory::Get().Allocate(count * sizeof(T)));
  }
  void deallocate(T* memory, size_t count) {
    BlockMemory::Get().Release(memory, count * sizeof(T));
  }
  friend bool operator==(const BlockAllocator& /*a*/, const BlockAllocator& /*b*/) { return true; }
};

using BlockBytes = std::vector<std::byte, BlockAllocator<std::byte>>;

}  // namespace baton::transport
