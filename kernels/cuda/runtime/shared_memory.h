// SPDX-License-Identifier: Apache-2.0
// Device memory that other processes can map, by the driver's virtual memory
// management. Any thread, on the device that it has selected. What is returned as
// text: null, or what went wrong (static).
#pragma once

#include <cstddef>

#include "kernels/cuda/api/device_table.h"

namespace baton::gpu {

const char* AllocateSharedMemory(size_t bytes, SharedMemory* memory);
void ReleaseSharedMemory(const SharedMemory& memory);

// `bytes` as they were allocated. Readable alone where the driver grants that.
const char* MapSharedMemory(int fd, size_t bytes, const void** memory);
void UnmapSharedMemory(const void* memory, size_t bytes);

}  // namespace baton::gpu
