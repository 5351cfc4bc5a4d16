// SPDX-License-Identifier: Apache-2.0
// The table of libbaton_cuda.so: the CUDA runtime.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/api/device_table.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/cublaslt_gemm.h"
#include "kernels/cuda/runtime/shared_memory.h"

namespace baton::gpu {
namespace {

int device_index = 0;
// The first error that nobody was told of.
cudaError_t first_error = cudaSuccess;

void Note(cudaError_t error) {
  if (first_error == cudaSuccess) first_error = error;
}

const char* Text(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

void BindThread() { Note(cudaSetDevice(device_index)); }

const char* Open(int index, DeviceFacts* facts) {
  int count = 0;
  if (const char* problem = Text(cudaGetDeviceCount(&count)); problem != nullptr) return problem;
  if (index < 0 || index >= count) return "there is no device of that number";
  device_index = index;
  if (const char* problem = Text(cudaSetDevice(index)); problem != nullptr) return problem;
  cudaDeviceProp properties;
  if (const char* problem = Text(cudaGetDeviceProperties(&properties, index)); problem != nullptr) {
    return problem;
  }
  if (properties.major < 8) return "the device is older than compute capability 8.0";
  launches_overlap = properties.major >= 9;
  std::snprintf(facts->name, sizeof(facts->name), "%s", properties.name);
  std::snprintf(facts->architecture, sizeof(facts->architecture), "sm_%d%d", properties.major,
                properties.minor);
  size_t free_bytes = 0, total_bytes = 0;
  const char* problem = Text(cudaMemGetInfo(&free_bytes, &total_bytes));
  facts->free_bytes = free_bytes;
  facts->total_bytes = total_bytes;
  return problem;
}

void* Allocate(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  cudaGetLastError();  // told by the null
  return nullptr;
}
void Release(void* memory) { Note(cudaFree(memory)); }

void* AllocateHost(size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, bytes) == cudaSuccess) return memory;
  cudaGetLastError();
  return nullptr;
}
void ReleaseHost(void* memory) { Note(cudaFreeHost(memory)); }

bool Pin(void* memory, size_t bytes) {
  if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}
void Unpin(void* memory) { Note(cudaHostUnregister(memory)); }

void Memory(uint64_t* total_bytes, uint64_t* free_bytes) {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  *total_bytes = total;
  *free_bytes = free;
}

Stream MakeStream() {
  cudaStream_t stream = nullptr;
  Note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
void DropStream(Stream stream) { Note(cudaStreamDestroy(static_cast<cudaStream_t>(stream))); }

void CopyIn(void* device, const void* host, size_t bytes, Stream stream) {
  Note(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                       static_cast<cudaStream_t>(stream)));
}
void CopyOut(void* host, const void* device, size_t bytes, Stream stream) {
  Note(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                       static_cast<cudaStream_t>(stream)));
}

// What a product was refused with, until somebody was told of it.
std::string gemm_problem;
std::unique_ptr<CublasLtGemm> gemm;

// Below, a product is bound by the bytes of its weights, and the library would
// have to read them twice (docs/gpu.md).
constexpr uint32_t kGemmRows = 129;

const char* OpenGemm(const char** name) {
  static std::string problem;
  static void* const workspace = Allocate(CublasLtGemm::kWorkspaceBytes);
  if (workspace == nullptr) return "there is no GPU memory for its workspace";
  if (gemm == nullptr) gemm = CublasLtGemm::Open(workspace, &problem);
  if (gemm == nullptr) return problem.c_str();
  *name = gemm->name().c_str();
  return nullptr;
}

void Gemm(const GemmTask& task, Stream stream) { gemm->Run(task, stream, &gemm_problem); }

// What went wrong with what was started up to now, and with waiting for it.
const char* Told(cudaError_t waited) {
  static std::string told;
  Note(cudaGetLastError());  // of kernels that could not be started
  Note(waited);
  const cudaError_t error = std::exchange(first_error, cudaSuccess);
  told = std::exchange(gemm_problem, {});
  return error != cudaSuccess || told.empty() ? Text(error) : told.c_str();
}

const char* Finish(Stream stream) {
  return Told(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

Event MakeEvent() {
  cudaEvent_t event = nullptr;
  Note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
void DropEvent(Event event) { Note(cudaEventDestroy(static_cast<cudaEvent_t>(event))); }
void Record(Event event, Stream stream) {
  Note(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}
const char* Wait(Event event) {
  return Told(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

void BeginCapture(Stream stream) {
  Note(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal));
}
Graph EndCapture(Stream stream) {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph) != cudaSuccess) {
    cudaGetLastError();  // told by the null
    return nullptr;
  }
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  Note(cudaGraphDestroy(graph));
  if (error == cudaSuccess) return executable;
  cudaGetLastError();
  return nullptr;
}
void Replay(Graph graph, Stream stream) {
  Note(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
}
void DropGraph(Graph graph) { Note(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph))); }

const DeviceTable* Table() {
  static const DeviceTable table = [] {
    DeviceTable filled{};
    filled.version = kTableVersion;
    filled.name = "cuda";
    filled.open = Open;
    filled.bind_thread = BindThread;
    filled.allocate = Allocate;
    filled.release = Release;
    filled.allocate_shared = AllocateSharedMemory;
    filled.release_shared = ReleaseSharedMemory;
    filled.allocate_host = AllocateHost;
    filled.release_host = ReleaseHost;
    filled.pin = Pin;
    filled.unpin = Unpin;
    filled.memory = Memory;
    filled.make_stream = MakeStream;
    filled.drop_stream = DropStream;
    filled.copy_in = CopyIn;
    filled.copy_out = CopyOut;
    filled.finish = Finish;
    filled.make_event = MakeEvent;
    filled.drop_event = DropEvent;
    filled.record = Record;
    filled.wait = Wait;
    filled.begin_capture = BeginCapture;
    filled.end_capture = EndCapture;
    filled.replay = Replay;
    filled.drop_graph = DropGraph;
    filled.open_gemm = OpenGemm;
    filled.gemm = Gemm;
    filled.gemm_rows = kGemmRows;
    FillKernels(filled);
    return filled;
  }();
  return &table;
}

}  // namespace
}  // namespace baton::gpu

extern "C" __attribute__((visibility("default"))) const baton::gpu::DeviceTable* baton_gpu_table() {
  return baton::gpu::Table();
}
