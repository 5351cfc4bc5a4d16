// SPDX-License-Identifier: Apache-2.0
// What the nccl and cuda_ipc transports need of a GPU: memory, copies, streams and
// events that can be asked without waiting. Beside the DeviceTable in the same plugin, because
// threads of their own use it: nothing here shares state with the model's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/api/kernels.h"

namespace baton::gpu {

// Changes with any change of this table.
inline constexpr uint32_t kTransferVersion = 2;
inline constexpr char kTransferSymbol[] = "baton_gpu_transfer_table";

// Functions that return text: null, or what went wrong (static). Thread safety:
// any thread that has called `open`; a stream and its events from one at a time.
struct TransferTable {
  uint32_t version;
  // Selects device `index` for the calling thread.
  const char* (*open)(int index);
  void* (*allocate)(size_t bytes);  // null: there is not so much
  void (*release)(void* memory);
  void* (*allocate_host)(size_t bytes);  // pinned
  void (*release_host)(void* memory);
  Stream (*make_stream)();  // null: none could be made
  void (*drop_stream)(Stream stream);
  Event (*make_event)();  // null: none could be made
  void (*drop_event)(Event event);
  // In the stream's order; none of them waits.
  const char* (*copy_in)(void* device, const void* host, size_t bytes, Stream stream);
  const char* (*copy_out)(void* host, const void* device, size_t bytes, Stream stream);
  const char* (*record)(Event event, Stream stream);
  // Whether all that stood before the event in its stream is done.
  const char* (*reached)(Event event, bool* yes);
  // For cuda_ipc; null in a stand-in for nccl alone.
  // Maps memory of another process (DeviceTable::allocate_shared), to be read;
  // `fd` stays the caller's. `unmap` when nothing reads it any more.
  const char* (*map_shared)(int fd, size_t bytes, const void** memory);
  void (*unmap_shared)(const void* memory, size_t bytes);
  // In the stream's order; none of them waits.
  const char* (*copy)(void* to, const void* from, size_t bytes, Stream stream);
  const char* (*checksums)(const ChecksumTask& task, Stream stream);
};

using TransferTableFunction = const TransferTable*();

}  // namespace baton::gpu
