// SPDX-License-Identifier: Apache-2.0
#include "tests/common/transport/block_memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "kernels/cuda/api/device_table.h"

namespace baton::transport {
namespace {

constexpr size_t kPoolBytes = size_t{160} << 20;
constexpr size_t kAlignment = 256;

[[noreturn]] void Fail(const char* problem) {
  std::fprintf(stderr, "blocks of the test: %s\n", problem);
  std::abort();
}

// Given out from the front; begins anew once all has come back.
struct Pool {
  std::mutex mutex;
  pid_t owner = 0;
  kv::DevicePool memory;
  size_t used = 0, living = 0;
};

Pool& ThePool() {
  static Pool pool;
  if (pool.owner == getpid()) return pool;
  void* const library = dlopen(BATON_EMULATED_GPU, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail("the emulated GPU is not there");
  auto* const table = reinterpret_cast<gpu::TableFunction*>(dlsym(library, gpu::kTableSymbol));
  gpu::SharedMemory shared{};
  if (table()->allocate_shared(kPoolBytes, &shared) != nullptr) Fail("no memory");
  auto* const data = static_cast<std::byte*>(shared.data);
  pool.memory = {data, data, shared.bytes, shared.bytes, shared.fd};
  pool.used = pool.living = 0;
  pool.owner = getpid();
  return pool;
}

}  // namespace

BlockMemory& BlockMemory::Get() {
  static BlockMemory memory;
  return memory;
}

const kv::DevicePool* BlockMemory::pool() { return use_pool_ ? &ThePool().memory : nullptr; }

void* BlockMemory::Allocate(size_t bytes) {
  if (!use_pool_) return ::operator new(bytes);
  Pool& pool = ThePool();
  const std::lock_guard lock(pool.mutex);
  const size_t begin = pool.used;
  pool.used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (pool.used > pool.memory.size) Fail("the pool is full");
  ++pool.living;
  return pool.memory.data + begin;
}

void BlockMemory::Release(void* memory, size_t bytes) {
  Pool& pool = ThePool();
  if (!pool.memory.OffsetOf({static_cast<std::byte*>(memory), bytes})) {
    return ::operator delete(memory);
  }
  const std::lock_guard lock(pool.mutex);
  if (--pool.living == 0) pool.used = 0;
}

}  // namespace baton::transport
