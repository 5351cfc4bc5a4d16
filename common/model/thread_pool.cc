// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

namespace baton::model {
namespace {

// Longer than a barrier of balanced work takes. To yield after it would hand a
// busy machine's core away for whole time slices; a sleeper is woken at once.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kPausesPerLook = 32;

void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// std::atomic::wait would do, but it yields before it sleeps.
void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

void Pin(pthread_t thread, uint32_t cpu) {
  if (cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);
}

}  // namespace

void ThreadPool::WaitForChange(std::atomic<uint32_t>& word, uint32_t old) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      CpuPause();
    }
    if (std::chrono::steady_clock::now() - start >= kSpin) break;
  }
  // Either the kernel sees the new value, or Advance sees the sleeper.
  sleepers_.fetch_add(1);
  while (word.load() == old) Futex(word, FUTEX_WAIT, old);
  sleepers_.fetch_sub(1);
}

void ThreadPool::Advance(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  if (sleepers_.load() > 0) Futex(word, FUTEX_WAKE, INT_MAX);
}

ThreadPool::ThreadPool(uint32_t threads)
    : threads_(threads), active_(threads), placed_(threads, -1) {
  workers_ = std::make_unique<Worker[]>(threads_ - 1);
  for (uint32_t i = 1; i < threads_; ++i) {
    workers_[i - 1].thread = std::thread([this, i] { Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  function_ = nullptr;
  for (uint32_t i = 1; i < threads_; ++i) Advance(workers_[i - 1].run);
  for (uint32_t i = 1; i < threads_; ++i) workers_[i - 1].thread.join();
}

void ThreadPool::Place(std::span<const uint32_t> cpus) {
  active_ = static_cast<uint32_t>(std::min<size_t>(threads_, cpus.size()));
  for (uint32_t i = 0; i < active_; ++i) {
    if (placed_[i] == cpus[i]) continue;
    placed_[i] = cpus[i];
    Pin(i == 0 ? pthread_self() : workers_[i - 1].thread.native_handle(), cpus[i]);
  }
}

void ThreadPool::Run(absl::FunctionRef<void(uint32_t)> function) {
  function_ = &function;
  for (uint32_t i = 1; i < active_; ++i) Advance(workers_[i - 1].run);
  function(0);
  Barrier();
}

void ThreadPool::Barrier() {
  // Read before the arrival: after it, the last one may return from Run and
  // change the number.
  const uint32_t active = active_;
  if (active == 1) return;
  const uint32_t passed = barrier_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < active) {
    WaitForChange(barrier_, passed);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  Advance(barrier_);
}

void ThreadPool::Work(uint32_t thread) {
  for (uint32_t seen = 0;; ++seen) {
    WaitForChange(workers_[thread - 1].run, seen);
    if (function_ == nullptr) return;
    (*function_)(thread);
    Barrier();
  }
}

}  // namespace baton::model
