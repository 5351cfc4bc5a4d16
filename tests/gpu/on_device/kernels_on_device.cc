// SPDX-License-Identifier: Apache-2.0
// Preloaded into the kernels' GoogleTests (tests/kernels/cuda), it lets them run
// on the device that BATON_TEST_DEVICE names: kernels start through its plugin,
// and what tests allocate lies in pinned memory, which the device reads and
// writes under the same addresses. So the very tests of the emulator are those
// of the hardware.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "kernels/cuda/api/device_table.h"
#include "tests/gpu/on_device/pinned_heap.h"

namespace baton::gpu {
namespace {

constexpr size_t kPinnedBytes = size_t{1} << 30;

[[noreturn]] void End(const char* what, const char* why) {
  std::fprintf(stderr, "on_device: %s: %s\n", what, why == nullptr ? "unknown" : why);
  std::_Exit(2);
}

PinnedHeap& Heap() {
  static PinnedHeap heap;
  return heap;
}

struct OpenDevice {
  const DeviceTable* table;
  Stream stream;
};

OpenDevice OpenTestDevice() {
  const char* const text = std::getenv("BATON_TEST_DEVICE");
  const std::string name = text == nullptr ? "emulated" : text;
  const bool emulated = name == "emulated";
  const char* const file = emulated ? "libbaton_gpu_emulated.so" : "libbaton_cuda.so";
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) End(file, dlerror());
  auto* const function = reinterpret_cast<TableFunction*>(dlsym(library, kTableSymbol));
  if (function == nullptr) End(file, "it has no table");
  const DeviceTable* const table = function();
  if (table->version != kTableVersion) End(file, "it is of another version");
  DeviceFacts facts{};
  const size_t colon = name.find(':');
  const int index = colon == std::string::npos ? 0 : std::atoi(name.c_str() + colon + 1);
  if (const char* problem = table->open(index, &facts)) End(name.c_str(), problem);
  table->bind_thread();
  void* const memory = table->allocate_host(kPinnedBytes);
  if (memory == nullptr) End(name.c_str(), "no pinned memory");
  Heap().Adopt(memory, kPinnedBytes);
  std::fprintf(stderr, "on_device: kernels run on %s\n", facts.name);
  return {table, table->make_stream()};
}

// Before main: whatever a test allocates has to be there for the device.
const OpenDevice device = OpenTestDevice();

template <typename Task>
void Run(void (*DeviceTable::*kernel)(const Task&, Stream), const Task& task) {
  (device.table->*kernel)(task, device.stream);
  if (const char* problem = device.table->finish(device.stream)) End("a kernel", problem);
}

}  // namespace

void Embed(const EmbedTask& task, Stream /*stream*/) { Run(&DeviceTable::embed, task); }
void RmsNorm(const NormTask& task, Stream /*stream*/) { Run(&DeviceTable::rms_norm, task); }
void Linear(const LinearTask& task, Stream /*stream*/) { Run(&DeviceTable::linear, task); }
void RopeAppend(const QkvTask& task, Stream /*stream*/) { Run(&DeviceTable::rope_append, task); }
void DecodeAttention(const DecodeTask& task, Stream /*stream*/) {
  Run(&DeviceTable::decode_attention, task);
}
void PrefillAttention(const PrefillTask& task, Stream /*stream*/) {
  Run(&DeviceTable::prefill_attention, task);
}
void CopyBlocks(const CopyTask& task, Stream /*stream*/) { Run(&DeviceTable::copy_blocks, task); }
void Checksums(const ChecksumTask& task, Stream /*stream*/) { Run(&DeviceTable::checksums, task); }
void ZeroBlocks(const ZeroTask& task, Stream /*stream*/) { Run(&DeviceTable::zero_blocks, task); }
void PackWeights(const PackTask& task, Stream /*stream*/) { Run(&DeviceTable::pack_weights, task); }
void UnpackWeights(const UnpackTask& task, Stream /*stream*/) {
  Run(&DeviceTable::unpack_weights, task);
}
void PlainRows(const PlainRowsTask& task, Stream /*stream*/) {
  Run(&DeviceTable::plain_rows, task);
}
void SwiGlu(const SwiGluTask& task, Stream /*stream*/) { Run(&DeviceTable::swiglu, task); }
void Sample(const SampleTask& task, Stream /*stream*/) { Run(&DeviceTable::sample, task); }

}  // namespace baton::gpu

// NOLINTBEGIN(cppcoreguidelines-no-malloc): this is operator new.
void* operator new(size_t bytes) {
  void* memory = baton::gpu::Heap().Take(bytes);
  if (memory == nullptr) memory = std::malloc(bytes);  // before main, and what devices never see
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr && !baton::gpu::Heap().GiveBack(memory)) std::free(memory);
}
void operator delete(void* memory, size_t /*bytes*/) noexcept { operator delete(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)
