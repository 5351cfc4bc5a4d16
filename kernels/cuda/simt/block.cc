// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kernels/cuda/simt/copy.h"
#include "kernels/cuda/simt/fiber.h"
#include "kernels/cuda/simt/overlap.h"

// This file itself is compiled without TSan (CMakeLists.txt).
#ifdef BATON_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace baton::simt {
namespace {

constexpr size_t kMostStaticShared = size_t{48} << 10;
constexpr size_t kSharedAlignment = 128;

struct PendingCopy {
  void* to;
  const void* from;
  // What stood there at the start, of copies that do not wait for producers: they
  // may be done at once.
  bool early = false;
  uint32_t words[4] = {};
};

struct Thread {
  std::unique_ptr<Fiber> fiber;
  bool done = false;
  bool waited = false;  // for the kernels before
  const char* waits_for = nullptr;
  std::vector<PendingCopy> open;                 // not committed yet
  std::vector<std::vector<PendingCopy>> groups;  // committed, oldest first
};

struct Warp {
  unsigned threads = 0, arrived = 0;
  const char* name = nullptr;
  void* arguments[kWarp] = {};
};

// Everything that an OS thread's launches share.
struct Emulator {
  Fiber main;
  std::vector<Thread> threads{kMostThreads};
  Warp warps[kMostThreads / kWarp];
  unsigned count = 0, live = 0, current = 0, barrier_arrived = 0;
  // Of a kernel that must wait for those before it: threads of the block that do,
  // and whether what those wrote is hidden from it.
  bool dependent = false, hidden = false;
  unsigned producers_arrived = 0;
  Dim grid, block;
  size_t dynamic_shared = 0;
  char* shared = nullptr;  // allocated to the byte, so that ASan sees what runs over
  size_t shared_bytes = 0;
  // Threads that could run, in a ring: each at most once.
  unsigned ready[kMostThreads] = {};
  unsigned ready_begin = 0, ready_count = 0;
  Schedule schedule = Schedule::kInOrder;
  uint32_t random = 1;
  uint64_t switches = 0;
  bool recording = false;
  std::vector<std::function<void()>> recorded;
  const std::function<void()>* kernel = nullptr;
};

Emulator& Self() {
  thread_local Emulator emulator;
  return emulator;
}

void Acquire([[maybe_unused]] void* at) {
#ifdef BATON_TSAN
  __tsan_acquire(at);
#endif
}
void Release([[maybe_unused]] void* at) {
#ifdef BATON_TSAN
  __tsan_release(at);
#endif
}

[[noreturn]] void Fail(const Emulator& e, const char* problem) {
  std::fprintf(stderr, "simt: %s (block %u,%u,%u", problem, e.block.x, e.block.y, e.block.z);
  for (unsigned i = 0, told = 0; i < e.count && told < 4; ++i) {
    const Thread& thread = e.threads[i];
    if (thread.done || thread.waits_for == nullptr) continue;
    std::fprintf(stderr, "; thread %u waits at %s", i, thread.waits_for);
    ++told;
  }
  std::fprintf(stderr, ")\n");
  std::fflush(stderr);
  std::abort();
}

void MakeReady(Emulator& e, unsigned thread) {
  e.threads[thread].waits_for = nullptr;
  e.ready[(e.ready_begin + e.ready_count++) % kMostThreads] = thread;
}

// Takes the next thread that could run; none left: a deadlock.
unsigned NextReady(Emulator& e) {
  if (e.ready_count == 0) Fail(e, "deadlock: some threads never reach what the others wait at");
  unsigned chosen = 0;  // from the oldest
  if (e.schedule == Schedule::kReversed) {
    chosen = e.ready_count - 1;
  } else if (e.schedule == Schedule::kRandom) {
    e.random = e.random * 1664525u + 1013904223u;
    chosen = (e.random >> 8) % e.ready_count;
  }
  std::swap(e.ready[e.ready_begin], e.ready[(e.ready_begin + chosen) % kMostThreads]);
  const unsigned next = e.ready[e.ready_begin];
  e.ready_begin = (e.ready_begin + 1) % kMostThreads;
  --e.ready_count;
  return next;
}

void SwitchTo(Emulator& e, unsigned next) {
  const unsigned from = e.current;
  if (from == next) return;
  e.current = next;
  ++e.switches;
  Fiber::Switch(*e.threads[from].fiber, *e.threads[next].fiber);
}

// The calling thread goes on when somebody has made it ready.
void Wait(Emulator& e, const char* at) {
  e.threads[e.current].waits_for = at;
  SwitchTo(e, NextReady(e));
}

// A barrier of the block counts the threads that have not ended.
void ReleaseBarrier(Emulator& e) {
  e.barrier_arrived = 0;
  for (unsigned i = 0; i < e.count; ++i) {
    if (!e.threads[i].done && i != e.current) MakeReady(e, i);
  }
}

void RunThread(void* argument) {
  Emulator& e = *static_cast<Emulator*>(argument);
  Acquire(&e.live);
  (*e.kernel)();
  Release(&e.live);
  Thread& thread = e.threads[e.current];
  if (e.dependent && !thread.waited) {
    Fail(e, "a thread ends and has not waited for the kernels before");
  }
  thread.done = true;
  --e.live;
  --e.warps[e.current / kWarp].threads;
  if (e.live == 0) {
    Fiber::Switch(*thread.fiber, e.main);
  } else {
    if (e.barrier_arrived == e.live) ReleaseBarrier(e);
    SwitchTo(e, NextReady(e));
  }
}

void StartBlock(Emulator& e) {
  e.live = e.count;
  e.barrier_arrived = e.producers_arrived = 0;
  e.ready_begin = e.ready_count = 0;
  if (e.shared != nullptr) std::memset(e.shared, 0xff, e.shared_bytes);
  for (unsigned i = 0; i < e.count; ++i) {
    Thread& thread = e.threads[i];
    if (thread.fiber == nullptr) thread.fiber = std::make_unique<Fiber>(Fiber::kStackBytes);
    thread.fiber->Start(RunThread, &e);
    thread.done = thread.waited = false;
    thread.open.clear();
    thread.groups.clear();
    MakeReady(e, i);
  }
  for (unsigned w = 0; w * kWarp < e.count; ++w) {
    e.warps[w] = {.threads = std::min(kWarp, e.count - w * kWarp)};
  }
}

void RunBlock(Emulator& e) {
  StartBlock(e);
  e.hidden = e.dependent && OverlapIsOn();
  if (e.hidden) HideWritten();
  Release(&e.live);
  e.current = NextReady(e);
  Fiber::Switch(e.main, *e.threads[e.current].fiber);
  Acquire(&e.live);
}

void AllocateShared(Emulator& e, size_t bytes) {
  e.shared = static_cast<char*>(operator new (bytes, std::align_val_t{kSharedAlignment}));
  e.shared_bytes = bytes;
  std::memset(e.shared, 0xff, bytes);
}

void FreeShared(Emulator& e) {
  operator delete (e.shared, std::align_val_t{kSharedAlignment});
  e.shared = nullptr;
  e.shared_bytes = 0;
}

}  // namespace

void SetSchedule(Schedule schedule) { Self().schedule = schedule; }

void Launch(Dim grid, Dim threads, size_t dynamic_shared, const std::function<void()>& kernel) {
  Emulator& e = Self();
  e.count = threads.x * threads.y * threads.z;
  e.grid = grid;
  e.dynamic_shared = dynamic_shared;
  e.kernel = &kernel;
  if (e.count == 0 || e.count > kMostThreads) Fail(e, "a block of no or too many threads");
  if (OverlapIsOn()) BeginWrites();
  for (e.block.z = 0; e.block.z < grid.z; ++e.block.z) {
    for (e.block.y = 0; e.block.y < grid.y; ++e.block.y) {
      for (e.block.x = 0; e.block.x < grid.x; ++e.block.x) RunBlock(e);
    }
  }
  FreeShared(e);
  if (OverlapIsOn()) EndWrites();
}

void LaunchDependent(Dim grid, Dim threads, size_t dynamic_shared,
                     const std::function<void()>& kernel) {
  Self().dependent = true;
  Launch(grid, threads, dynamic_shared, kernel);
  Self().dependent = false;
}

void RunUntil(Stream& stream, uint64_t done) {
  for (; stream.done < done; ++stream.done) {
    stream.waiting.front()();
    stream.waiting.pop_front();
  }
}

void Start(Stream* stream, std::function<void()> work) {
  Emulator& e = Self();
  if (e.recording) {
    e.recorded.push_back(std::move(work));
  } else if (stream == nullptr) {
    work();
  } else {
    stream->waiting.push_back(std::move(work));
    ++stream->started;
  }
}

void BeginRecording() { Self().recording = true; }

std::vector<std::function<void()>> EndRecording() {
  Self().recording = false;
  return std::exchange(Self().recorded, {});
}

unsigned ThreadIndex() { return Self().current; }
Dim BlockIndex() { return Self().block; }
Dim GridSize() { return Self().grid; }

void* SharedMemory(size_t bytes) {
  Emulator& e = Self();
  if (bytes != e.dynamic_shared && (e.dynamic_shared != 0 || bytes > kMostStaticShared)) {
    Fail(e, "the kernel uses another amount of shared memory than it was launched with");
  }
  if (e.shared == nullptr) {
    AllocateShared(e, bytes);
    Release(&e.shared);
  }
  Acquire(&e.shared);
  if (e.shared_bytes != bytes) Fail(e, "two kinds of shared memory in one kernel");
  return e.shared;
}

void SyncBlock() {
  Emulator& e = Self();
  Release(&e.barrier_arrived);
  if (++e.barrier_arrived == e.live) {
    ReleaseBarrier(e);
  } else {
    Wait(e, "the block's barrier");
  }
  Acquire(&e.barrier_arrived);
}

void WaitForProducers() {
  Emulator& e = Self();
  e.threads[e.current].waited = true;
  if (!e.hidden) return;
  Release(&e.producers_arrived);
  if (++e.producers_arrived == e.count) {
    Acquire(&e.producers_arrived);
    e.hidden = false;
    ShowWritten();
    Release(&e.producers_arrived);
    for (unsigned i = 0; i < e.count; ++i) {
      if (i != e.current) MakeReady(e, i);
    }
  } else {
    Wait(e, "the end of the kernels before");
  }
  Acquire(&e.producers_arrived);
}

void MeetWarp(const char* name, void* argument, void (*meet)(void* const* arguments)) {
  Emulator& e = Self();
  const unsigned first = e.current / kWarp * kWarp;
  Warp& warp = e.warps[e.current / kWarp];
  if (warp.arrived == 0) {
    warp.name = name;
  } else if (std::strcmp(warp.name, name) != 0) {
    e.threads[e.current].waits_for = name;
    Fail(e, "threads of a warp meet at different instructions");
  }
  warp.arguments[e.current % kWarp] = argument;
  Release(&warp);
  if (++warp.arrived == warp.threads) {
    if (warp.threads != std::min(kWarp, e.count - first)) {
      Fail(e, "a warp meets after some of its threads have ended");
    }
    warp.arrived = 0;
    Acquire(&warp);
    if (meet != nullptr) meet(warp.arguments);
    Release(&warp);
    for (unsigned i = first; i < first + warp.threads; ++i) {
      if (i != e.current) MakeReady(e, i);
    }
  } else {
    Wait(e, name);
  }
  Acquire(&warp);
}

void SyncWarp() { MeetWarp("the warp's barrier", nullptr, nullptr); }

void CopyAsync16(void* to, const void* from) {
  Emulator& e = Self();
  static const uint64_t kNan[2] = {~uint64_t{0}, ~uint64_t{0}};
  Copy16(to, kNan);
  PendingCopy copy{to, from};
  copy.early = e.hidden;
  if (copy.early) Copy16(copy.words, from);
  e.threads[e.current].open.push_back(copy);
}

void CommitCopies() {
  Emulator& e = Self();
  Thread& thread = e.threads[e.current];
  thread.groups.push_back(std::move(thread.open));
  thread.open.clear();
}

void WaitCopies(unsigned pending) {
  Emulator& e = Self();
  auto& groups = e.threads[e.current].groups;
  const size_t arrive = groups.size() > pending ? groups.size() - pending : 0;
  for (size_t i = 0; i < arrive; ++i) {
    for (const PendingCopy& copy : groups[i]) {
      Copy16(copy.to, copy.early ? copy.words : copy.from);
    }
  }
  groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(arrive));
}

uint64_t SwitchCount() { return Self().switches; }

}  // namespace baton::simt
