// SPDX-License-Identifier: Apache-2.0
// Where the blocks of transports' tests stand: on the heap, or for cuda_ipc in memory
// of the emulated GPU that other processes can map.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

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

// Bytes of one block there.
class BlockBytes {
 public:
  BlockBytes(size_t size, std::byte fill)
      : data_(static_cast<std::byte*>(BlockMemory::Get().Allocate(size))), size_(size) {
    std::memset(data_, static_cast<int>(fill), size);
  }
  BlockBytes(const BlockBytes& other) : BlockBytes(other.size_, std::byte{0}) {
    std::memcpy(data_, other.data_, size_);
  }
  BlockBytes(BlockBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  BlockBytes& operator=(BlockBytes&&) = delete;
  ~BlockBytes() {
    if (data_ != nullptr) BlockMemory::Get().Release(data_, size_);
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_;
  size_t size_;
};

}  // namespace baton::transport
