// SPDX-License-Identifier: Apache-2.0
// Runs GPU kernels on the CPU, one block (CTA) after another: every thread of
// a block is a fiber; barriers, shuffles and matrix instructions are meetings.
//
// What it finds that a GPU would answer with wrong numbers or a hang: reads of
// shared memory that nobody wrote or whose asynchronous copy has not been waited
// for (NaN patterns), threads of a warp that meet at different instructions,
// barriers that some threads never reach. Under ASan: accesses outside of any
// buffer; under TSan: accesses that no barrier keeps apart. What it does not
// know: time, banks, coalescing, weak memory order, the rounding inside of
// tensor cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace baton::simt {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kMostThreads = 1024;

// In which order threads that could all go on are run. Results must not depend
// on it; tests run kernels under several.
enum class Schedule : uint8_t { kInOrder, kReversed, kRandom };
void SetSchedule(Schedule schedule);  // of this OS thread's launches

// Runs `kernel` once per thread of every block. `threads` <= kMostThreads;
// `dynamic_shared` bytes of shared memory are there (SharedMemory).
// Aborts with a sentence when threads deadlock or diverge where they must not.
void Launch(Dim grid, Dim threads, size_t dynamic_shared, const std::function<void()>& kernel);

// The same for a kernel that may begin before those before it have ended (overlap.h):
// each of its threads must call WaitForProducers.
void LaunchDependent(Dim grid, Dim threads, size_t dynamic_shared,
                     const std::function<void()>& kernel);

// Work that was started and waits until somebody needs it done: the latest that a
// GPU could run it, so that a host which counts on it earlier is found out.
struct Stream {
  std::deque<std::function<void()>> waiting;
  uint64_t started = 0, done = 0;  // in all
};
// Of `stream`, which was started first.
void RunUntil(Stream& stream, uint64_t done);

// Appends `work` to `stream`, or runs it now when that is null; keeps it instead
// while this OS thread records, as streams of GPUs can be captured.
void Start(Stream* stream, std::function<void()> work);
void BeginRecording();
std::vector<std::function<void()>> EndRecording();

// Inside of a kernel:

unsigned ThreadIndex();
Dim BlockIndex();
Dim GridSize();

// The block's shared memory: `bytes` of it, filled with 0xff when the block
// starts; `bytes` must be what Launch was told, or not more than 48 KiB when
// that was 0 (then it is static). The same for all threads.
void* SharedMemory(size_t bytes);

void SyncBlock();
void SyncWarp();
// All that kernels before this one wrote is there; of every thread, once.
void WaitForProducers();

// A meeting of all 32 threads of a warp: `meet(arguments)` runs once, with what
// each lane brought. `name` must be the same for all of them.
void MeetWarp(const char* name, void* argument, void (*meet)(void* const* arguments));

// 16 bytes that arrive when they are waited for; zeros when `from` is null.
// Until then the target holds NaN patterns.
void CopyAsync16(void* to, const void* from);
void CommitCopies();
void WaitCopies(unsigned pending);

// Of the launches of this process: meetings and switches, for tests of cost.
uint64_t SwitchCount();

}  // namespace baton::simt
