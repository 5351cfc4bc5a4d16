// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt/emulated_shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace baton::gpu {
namespace {

constexpr size_t kUnit = size_t{2} << 20;  // as a GPU rounds
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

// Filled with NaN patterns, as nobody may count on what is there.
const char* AllocateEmulatedShared(size_t bytes, SharedMemory* memory) {
  memory->bytes = (bytes + kUnit - 1) / kUnit * kUnit;
  memory->fd = memfd_create("baton-emulated-gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory->fd < 0) return "out of descriptors";
  void* data = MAP_FAILED;
  if (fallocate(memory->fd, 0, 0, static_cast<off_t>(memory->bytes)) == 0 &&
      fcntl(memory->fd, F_ADD_SEALS, kSeals) == 0) {
    data = mmap(nullptr, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
  }
  if (data == MAP_FAILED) {
    close(memory->fd);
    return "out of memory";
  }
  std::memset(data, 0xff, memory->bytes);
  memory->data = data;
  return nullptr;
}

void ReleaseEmulatedShared(const SharedMemory& memory) {
  munmap(memory.data, memory.bytes);
  close(memory.fd);
}

const char* MapEmulatedShared(int fd, size_t bytes, const void** memory) {
  struct stat status {};
  if (bytes == 0 || fstat(fd, &status) != 0 || static_cast<size_t>(status.st_size) != bytes) {
    return "no memory of that size";
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  // Without the seal its owner could shrink it and kill us with SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return "not memory of a device";
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return "out of memory";
  *memory = data;
  return nullptr;
}

void UnmapEmulatedShared(const void* memory, size_t bytes) {
  munmap(const_cast<void*>(memory), bytes);
}

}  // namespace baton::gpu
