// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated device that other processes can map: files in memory.
#pragma once

#include <cstddef>

#include "kernels/cuda/api/device_table.h"

namespace baton::gpu {

// As of the device table and the transfer table.
const char* AllocateEmulatedShared(size_t bytes, SharedMemory* memory);
void ReleaseEmulatedShared(const SharedMemory& memory);
const char* MapEmulatedShared(int fd, size_t bytes, const void** memory);
void UnmapEmulatedShared(const void* memory, size_t bytes);

}  // namespace baton::gpu
