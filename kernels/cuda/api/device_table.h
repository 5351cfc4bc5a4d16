// SPDX-License-Identifier: Apache-2.0
// What a GPU plugin offers: memory, copies, a stream, the kernels. Plain C
// functions and structs, so that neither side needs the other's libraries:
// libbaton_cuda.so is opened at run time, and nothing else knows CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/api/gemm.h"
#include "kernels/cuda/api/kernels.h"

namespace baton::gpu {

// Changes with any change of this table or of the tasks in kernels.h.
inline constexpr uint32_t kTableVersion = 4;
inline constexpr char kTableSymbol[] = "baton_gpu_table";

using Graph = void*;

struct DeviceFacts {
  char name[256];         // such as "NVIDIA H100 PCIe"
  char architecture[16];  // such as "sm_90"
  uint64_t total_bytes, free_bytes;
};

// Memory of the device that other processes can map: what `fd` names, which is the
// owner's to close. `bytes` is what they map: what was asked for, rounded up.
struct SharedMemory {
  void* data;
  size_t bytes;
  int fd;
};

// Functions that return text: null, or what went wrong (static, or valid until
// the next call). Thread safety: one thread at a time, each after bind_thread.
struct DeviceTable {
  uint32_t version;
  const char* name;  // "cuda", "emulated"
  // Selects device `index` for this process.
  const char* (*open)(int index, DeviceFacts* facts);
  void (*bind_thread)();
  void* (*allocate)(size_t bytes);  // null: there is not so much
  void (*release)(void* memory);    // that nothing uses which was started
  // What went wrong: the device cannot share, or there is not so much.
  const char* (*allocate_shared)(size_t bytes, SharedMemory* memory);
  void (*release_shared)(const SharedMemory& memory);  // closes the descriptor, too
  void* (*allocate_host)(size_t bytes);                // that copies run at full speed from and to
  void (*release_host)(void* memory);
  // Makes host memory that is there already such memory, until unpin; false: the
  // driver takes no more of it.
  bool (*pin)(void* memory, size_t bytes);
  void (*unpin)(void* memory);
  // Of the device, whoever uses it; zeros when the driver does not say.
  void (*memory)(uint64_t* total_bytes, uint64_t* free_bytes);
  Stream (*make_stream)();
  void (*drop_stream)(Stream stream);
  // In the stream's order; host memory must stay until they are done.
  void (*copy_in)(void* device, const void* host, size_t bytes, Stream stream);
  void (*copy_out)(void* host, const void* device, size_t bytes, Stream stream);
  // Waits for the stream; says the first error since the last call.
  const char* (*finish)(Stream stream);
  // A place in a stream that can be waited for while more is started behind it; `wait` says
  // what `finish` would.
  Event (*make_event)();
  void (*drop_event)(Event event);
  void (*record)(Event event, Stream stream);
  const char* (*wait)(Event event);
  // What kernels are started with in between is kept instead of run, and can be
  // replayed with the same arguments; null: it could not be kept.
  void (*begin_capture)(Stream stream);
  Graph (*end_capture)(Stream stream);
  void (*replay)(Graph graph, Stream stream);
  void (*drop_graph)(Graph graph);

  // The vendor's matrix library, for products of many rows: opens it; null, or why
  // there is none (valid until the next call). Its name and version: until the
  // process ends.
  const char* (*open_gemm)(const char** name);
  void (*gemm)(const GemmTask& task, Stream stream);  // after open_gemm
  uint32_t gemm_rows;  // from how many on it is to be preferred to `linear`

  decltype(&Embed) embed;
  decltype(&RmsNorm) rms_norm;
  decltype(&Linear) linear;
  decltype(&RopeAppend) rope_append;
  decltype(&DecodeAttention) decode_attention;
  decltype(&PrefillAttention) prefill_attention;
  decltype(&CopyBlocks) copy_blocks;
  decltype(&ZeroBlocks) zero_blocks;
  decltype(&Checksums) checksums;
  decltype(&Sample) sample;
  decltype(&PackWeights) pack_weights;
  decltype(&UnpackWeights) unpack_weights;
  decltype(&PlainRows) plain_rows;
  decltype(&SwiGlu) swiglu;
};

using TableFunction = const DeviceTable*();

// The kernels' part of a table.
inline void FillKernels(DeviceTable& table) {
  table.embed = &Embed;
  table.rms_norm = &RmsNorm;
  table.linear = &Linear;
  table.rope_append = &RopeAppend;
  table.decode_attention = &DecodeAttention;
  table.prefill_attention = &PrefillAttention;
  table.copy_blocks = &CopyBlocks;
  table.zero_blocks = &ZeroBlocks;
  table.checksums = &Checksums;
  table.sample = &Sample;
  table.pack_weights = &PackWeights;
  table.unpack_weights = &UnpackWeights;
  table.plain_rows = &PlainRows;
  table.swiglu = &SwiGlu;
}

}  // namespace baton::gpu
