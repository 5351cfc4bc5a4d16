// SPDX-License-Identifier: Apache-2.0
// The part of libbaton_cuda.so that the nccl and cuda_ipc transports use.
#include <cuda_runtime.h>

#include "kernels/cuda/api/transfer_table.h"
#include "kernels/cuda/runtime/shared_memory.h"

namespace baton::gpu {
namespace {

const char* Said(cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // told here, so that it is no later call's
  return cudaGetErrorString(error);
}

const char* OpenForThread(int index) { return Said(cudaSetDevice(index)); }

void* AllocateDevice(size_t bytes) {
  void* memory = nullptr;
  return Said(cudaMalloc(&memory, bytes)) == nullptr ? memory : nullptr;
}
void ReleaseDevice(void* memory) { Said(cudaFree(memory)); }

void* AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  return Said(cudaMallocHost(&memory, bytes)) == nullptr ? memory : nullptr;
}
void ReleasePinned(void* memory) { Said(cudaFreeHost(memory)); }

Stream NewStream() {
  cudaStream_t stream = nullptr;
  Said(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
void EndStream(Stream stream) { Said(cudaStreamDestroy(static_cast<cudaStream_t>(stream))); }

Event NewEvent() {
  cudaEvent_t event = nullptr;
  Said(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
void EndEvent(Event event) { Said(cudaEventDestroy(static_cast<cudaEvent_t>(event))); }

const char* ToDevice(void* device, const void* host, size_t bytes, Stream stream) {
  return Said(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                              static_cast<cudaStream_t>(stream)));
}
const char* ToHost(void* host, const void* device, size_t bytes, Stream stream) {
  return Said(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                              static_cast<cudaStream_t>(stream)));
}

const char* OnDevice(void* to, const void* from, size_t bytes, Stream stream) {
  return Said(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                              static_cast<cudaStream_t>(stream)));
}
const char* StartChecksums(const ChecksumTask& task, Stream stream) {
  Checksums(task, stream);
  return Said(cudaGetLastError());
}

const char* Record(Event event, Stream stream) {
  return Said(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}
const char* Reached(Event event, bool* yes) {
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
  *yes = state == cudaSuccess;
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    return nullptr;
  }
  return Said(state);
}

constexpr TransferTable kTransfers = {
    kTransferVersion,  OpenForThread, AllocateDevice, ReleaseDevice, AllocatePinned,
    ReleasePinned,     NewStream,     EndStream,      NewEvent,      EndEvent,
    ToDevice,          ToHost,        Record,         Reached,       MapSharedMemory,
    UnmapSharedMemory, OnDevice,      StartChecksums};

}  // namespace
}  // namespace baton::gpu

extern "C" __attribute__((visibility("default"))) const baton::gpu::TransferTable*
baton_gpu_transfer_table() {
  return &baton::gpu::kTransfers;
}
