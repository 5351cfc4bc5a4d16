// SPDX-License-Identifier: Apache-2.0
// The table of libbaton_gpu_emulated.so, for tests: memory of its own, so that
// what the host forgets to copy is missed; what is started runs when it is waited
// for, so that what the host takes for done too early is missed, too.
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/api/device_table.h"
#include "kernels/cuda/gemm/cublaslt_gemm.h"
#include "kernels/cuda/simt/block.h"
#include "kernels/cuda/simt/emulated_shared.h"
#include "kernels/cuda/simt/overlap.h"

namespace baton::gpu {
namespace {

constexpr uint64_t kDefaultBytes = uint64_t{4} << 30;

// $BATON_EMULATED_GPU_BYTES: a device of another size.
uint64_t TotalBytes() {
  const char* text = std::getenv("BATON_EMULATED_GPU_BYTES");
  return text == nullptr ? kDefaultBytes : std::strtoull(text, nullptr, 10);
}

// Several threads have a device each: a model's and those of transports.
std::atomic<uint64_t> used_bytes{0};

uint64_t FreeBytes() {
  const uint64_t total = TotalBytes(), used = used_bytes;
  return total > used ? total - used : 0;
}

void Memory(uint64_t* total_bytes, uint64_t* free_bytes) {
  *total_bytes = TotalBytes();
  *free_bytes = FreeBytes();
}

const char* Open(int index, DeviceFacts* facts) {
  if (index != 0) return "there is no device of that number";
  std::snprintf(facts->name, sizeof(facts->name), "emulated GPU");
  std::snprintf(facts->architecture, sizeof(facts->architecture), "simt");
  Memory(&facts->total_bytes, &facts->free_bytes);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets any.
  simt::SetOverlap(std::getenv("BATON_EMULATED_OVERLAP") != nullptr);
  return nullptr;
}

void BindThread() {}

// Filled with NaN patterns, as nobody may count on what is there.
void* AllocateHost(size_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xff, bytes);
  if (simt::OverlapIsOn()) simt::AddMemory(memory, bytes);
  return memory;
}
void ReleaseHost(void* memory) {
  simt::DropMemory(memory);
  std::free(memory);
}

// Its size stands in the 256 bytes before it.
constexpr size_t kHeader = 256;

void* Allocate(size_t bytes) {
  if (bytes > FreeBytes()) return nullptr;
  auto* memory = static_cast<std::byte*>(AllocateHost(kHeader + bytes));
  if (memory == nullptr) return nullptr;
  std::memcpy(memory, &bytes, sizeof(bytes));
  used_bytes += bytes;
  return memory + kHeader;
}
void Release(void* memory) {
  auto* header = static_cast<std::byte*>(memory) - kHeader;
  size_t bytes = 0;
  std::memcpy(&bytes, header, sizeof(bytes));
  used_bytes -= bytes;
  ReleaseHost(header);
}

const char* AllocateShared(size_t bytes, SharedMemory* memory) {
  if (bytes > FreeBytes()) return "out of memory";
  if (const char* problem = AllocateEmulatedShared(bytes, memory)) return problem;
  used_bytes += memory->bytes;
  if (simt::OverlapIsOn()) simt::AddMemory(memory->data, memory->bytes);
  return nullptr;
}
void ReleaseShared(const SharedMemory& memory) {
  simt::DropMemory(memory.data);
  used_bytes -= memory.bytes;
  ReleaseEmulatedShared(memory);
}

bool Pin(void* /*memory*/, size_t /*bytes*/) { return true; }
void Unpin(void* /*memory*/) {}

simt::Stream* Of(Stream stream) { return static_cast<simt::Stream*>(stream); }

Stream MakeStream() { return new simt::Stream; }
void DropStream(Stream stream) { delete Of(stream); }

void Copy(void* to, const void* from, size_t bytes, Stream stream) {
  simt::Start(Of(stream), [=] {
    simt::EndOverlap();
    std::memcpy(to, from, bytes);
  });
}

// What a product was refused with, until somebody was told of it.
std::string gemm_problem;
std::unique_ptr<CublasLtGemm> gemm;

// From fewer rows on than it would pay on a GPU, so that tests come through it.
constexpr uint32_t kGemmRows = 9;

const char* OpenGemm(const char** name) {
  static std::string problem;
  static const std::unique_ptr<std::byte[]> workspace(new std::byte[CublasLtGemm::kWorkspaceBytes]);
  if (gemm == nullptr) gemm = CublasLtGemm::Open(workspace.get(), &problem);
  if (gemm == nullptr) return problem.c_str();
  *name = gemm->name().c_str();
  return nullptr;
}

void Gemm(const GemmTask& task, Stream stream) {
  simt::Start(Of(stream), [task, stream] { gemm->Run(task, stream, &gemm_problem); });
}

const char* Told() {
  static std::string told;
  told = std::exchange(gemm_problem, {});
  return told.empty() ? nullptr : told.c_str();
}

const char* Finish(Stream stream) {
  simt::RunUntil(*Of(stream), Of(stream)->started);
  return Told();
}

struct Mark {
  simt::Stream* stream = nullptr;
  uint64_t done = 0;
};
Event MakeEvent() { return new Mark; }
void DropEvent(Event event) { delete static_cast<Mark*>(event); }
void Record(Event event, Stream stream) {
  *static_cast<Mark*>(event) = {Of(stream), Of(stream)->started};
}
const char* Wait(Event event) {
  const Mark& mark = *static_cast<Mark*>(event);
  if (mark.stream != nullptr) simt::RunUntil(*mark.stream, mark.done);
  return Told();
}

// Shared with replays that wait to be run.
using Recorded = std::shared_ptr<std::vector<std::function<void()>>>;

void BeginCapture(Stream /*stream*/) { simt::BeginRecording(); }
Graph EndCapture(Stream /*stream*/) {
  return new Recorded(std::make_shared<std::vector<std::function<void()>>>(simt::EndRecording()));
}
void Replay(Graph graph, Stream stream) {
  simt::Start(Of(stream), [recorded = *static_cast<Recorded*>(graph)] {
    for (const auto& work : *recorded) work();
  });
}
void DropGraph(Graph graph) { delete static_cast<Recorded*>(graph); }

const DeviceTable* Table() {
  static const DeviceTable table = [] {
    DeviceTable filled{};
    filled.version = kTableVersion;
    filled.name = "emulated";
    filled.open = Open;
    filled.bind_thread = BindThread;
    filled.allocate = Allocate;
    filled.release = Release;
    filled.allocate_host = AllocateHost;
    filled.release_host = ReleaseHost;
    filled.pin = Pin;
    filled.unpin = Unpin;
    filled.memory = Memory;
    filled.allocate_shared = AllocateShared;
    filled.release_shared = ReleaseShared;
    filled.make_stream = MakeStream;
    filled.drop_stream = DropStream;
    filled.copy_in = filled.copy_out = Copy;
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

extern "C" const baton::gpu::DeviceTable* baton_gpu_table() { return baton::gpu::Table(); }
