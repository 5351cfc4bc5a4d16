// SPDX-License-Identifier: Apache-2.0
// The table of libbaton_gpu_emulated.so, for tests: memory of its own, so that
// what the host forgets to copy is missed; every start runs at once.
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
#include "kernels/cuda/simt/overlap.h"

namespace baton::gpu {
namespace {

constexpr uint64_t kBytes = uint64_t{4} << 30;

const char* Open(int index, DeviceFacts* facts) {
  if (index != 0) return "there is no device of that number";
  std::snprintf(facts->name, sizeof(facts->name), "emulated GPU");
  std::snprintf(facts->architecture, sizeof(facts->architecture), "simt");
  facts->total_bytes = facts->free_bytes = kBytes;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets any.
  simt::SetOverlap(std::getenv("BATON_EMULATED_OVERLAP") != nullptr);
  return nullptr;
}

void BindThread() {}

// Filled with NaN patterns, as nobody may count on what is there.
void* Allocate(size_t bytes) {
  if (bytes > kBytes) return nullptr;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xff, bytes);
  if (simt::OverlapIsOn()) simt::AddMemory(memory, bytes);
  return memory;
}
void Release(void* memory) {
  simt::DropMemory(memory);
  std::free(memory);
}

bool Pin(void* /*memory*/, size_t /*bytes*/) { return true; }
void Unpin(void* /*memory*/) {}

Stream MakeStream() { return nullptr; }
void DropStream(Stream /*stream*/) {}

void Copy(void* to, const void* from, size_t bytes, Stream /*stream*/) {
  simt::EndOverlap();
  std::memcpy(to, from, bytes);
}

// What a product was refused with, until Finish has told it.
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
  simt::Start([task, stream] { gemm->Run(task, stream, &gemm_problem); });
}

const char* Finish(Stream /*stream*/) {
  static std::string told;
  told = std::exchange(gemm_problem, {});
  return told.empty() ? nullptr : told.c_str();
}

using Recorded = std::vector<std::function<void()>>;

void BeginCapture(Stream /*stream*/) { simt::BeginRecording(); }
Graph EndCapture(Stream /*stream*/) { return new Recorded(simt::EndRecording()); }
void Replay(Graph graph, Stream /*stream*/) {
  for (const auto& work : *static_cast<Recorded*>(graph)) work();
}
void DropGraph(Graph graph) { delete static_cast<Recorded*>(graph); }

const DeviceTable* Table() {
  static const DeviceTable table = [] {
    DeviceTable filled{};
    filled.version = kTableVersion;
    filled.name = "emulated";
    filled.open = Open;
    filled.bind_thread = BindThread;
    filled.allocate = filled.allocate_host = Allocate;
    filled.release = filled.release_host = Release;
    filled.pin = Pin;
    filled.unpin = Unpin;
    filled.make_stream = MakeStream;
    filled.drop_stream = DropStream;
    filled.copy_in = filled.copy_out = Copy;
    filled.finish = Finish;
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
