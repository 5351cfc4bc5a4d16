// SPDX-License-Identifier: Apache-2.0
// The transfer table of libbaton_gpu_emulated.so: streams are queues, which move on
// when somebody asks for an event.
#include "kernels/cuda/simt/emulated_transfer.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/cuda/api/transfer_table.h"
#include "kernels/cuda/simt/emulated_shared.h"

namespace baton::gpu {
namespace {

class Faults {
 public:
  static Faults& Get() {
    static Faults faults;
    return faults;
  }
  void Set(const char* plan) {
    const std::lock_guard lock(mutex_);
    plan_ = plan == nullptr ? "" : plan;
    copies_ = 0;
    ++generation_;
  }
  bool map_fails() {
    const std::lock_guard lock(mutex_);
    return plan_.find("map-fails") != std::string::npos;
  }

  struct OfCopy {
    bool fails, spoils, hangs;
    uint64_t generation;
  };
  OfCopy NextCopy() {
    const std::lock_guard lock(mutex_);
    ++copies_;
    return {After("copy-fails-after="), After("copy-spoils-after="), After("copy-hangs-after="),
            generation_};
  }
  bool Since(uint64_t generation) {
    const std::lock_guard lock(mutex_);
    return generation_ != generation;
  }

 private:
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets any.
  Faults() { Set(std::getenv("BATON_EMULATED_GPU")); }
  bool After(const std::string& name) const {
    const size_t at = plan_.find(name);
    return at != std::string::npos &&
           copies_ > std::strtoull(&plan_[at + name.size()], nullptr, 10);
  }

  std::mutex mutex_;
  std::string plan_;
  uint64_t copies_ = 0, generation_ = 0;
};

std::atomic<uint64_t> copies_ended{0};

// Work in order; true when it is complete, called again otherwise.
class Queue {
 public:
  void Add(std::function<bool()> work) { work_.push_back(std::move(work)); }
  void Progress() {
    while (!work_.empty() && work_.front()()) work_.pop_front();
  }

 private:
  std::deque<std::function<bool()>> work_;
};

struct Mark {
  Queue* queue = nullptr;
  bool reached = false;
};

const char* OpenEmulated(int index) {
  return index == 0 ? nullptr : "there is no device of that number";
}

void* AllocateFilled(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory != nullptr) std::memset(memory, 0xff, bytes);
  return memory;
}

Stream MakeQueue() { return new Queue; }
void DropQueue(Stream stream) { delete static_cast<Queue*>(stream); }
Event MakeMark() { return new Mark; }
void DropMark(Event event) { delete static_cast<Mark*>(event); }

const char* CopyHost(void* to, const void* from, size_t bytes, Stream stream) {
  static_cast<Queue*>(stream)->Add([to, from, bytes] {
    std::memcpy(to, from, bytes);
    return true;
  });
  return nullptr;
}

const char* CopyDevice(void* to, const void* from, size_t bytes, Stream stream) {
  const Faults::OfCopy faults = Faults::Get().NextCopy();
  if (faults.fails) return "an injected fault";
  static_cast<Queue*>(stream)->Add([to, from, bytes, faults] {
    if (faults.hangs && !Faults::Get().Since(faults.generation)) return false;
    std::memcpy(to, from, bytes);
    if (faults.spoils) static_cast<unsigned char*>(to)[bytes / 2] ^= 1;
    ++copies_ended;
    return true;
  });
  return nullptr;
}

const char* StartChecksums(const ChecksumTask& task, Stream stream) {
  static_cast<Queue*>(stream)->Add([task] {
    Checksums(task, nullptr);
    return true;
  });
  return nullptr;
}

const char* RecordMark(Event event, Stream stream) {
  Mark* const mark = static_cast<Mark*>(event);
  *mark = {static_cast<Queue*>(stream), false};
  mark->queue->Add([mark] { return mark->reached = true; });
  return nullptr;
}

const char* MarkReached(Event event, bool* yes) {
  Mark* const mark = static_cast<Mark*>(event);
  if (!mark->reached) mark->queue->Progress();
  *yes = mark->reached;
  return nullptr;
}

const char* MapOther(int fd, size_t bytes, const void** memory) {
  if (Faults::Get().map_fails()) return "an injected fault";
  return MapEmulatedShared(fd, bytes, memory);
}

constexpr TransferTable kEmulatedTransfers = {
    kTransferVersion, OpenEmulated,  AllocateFilled, std::free,
    AllocateFilled,   std::free,     MakeQueue,      DropQueue,
    MakeMark,         DropMark,      CopyHost,       CopyHost,
    RecordMark,       MarkReached,   MapOther,       UnmapEmulatedShared,
    CopyDevice,       StartChecksums};

}  // namespace
}  // namespace baton::gpu

extern "C" {

const baton::gpu::TransferTable* baton_gpu_transfer_table() {
  return &baton::gpu::kEmulatedTransfers;
}

void emulated_gpu_set_faults(const char* plan) { baton::gpu::Faults::Get().Set(plan); }
uint64_t emulated_gpu_copies() { return baton::gpu::copies_ended; }

}  // extern "C"
