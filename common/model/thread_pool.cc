// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <chrono>

namespace baton::model {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kYield = std::chrono::microseconds(200);
constexpr int kPausesPerLook = 32;

void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `word` is no longer `old`.
void WaitForChange(const std::atomic<uint32_t>& word, uint32_t old) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      CpuPause();
    }
    const auto waited = Clock::now() - start;
    if (waited < kSpin) continue;
    if (waited >= kSpin + kYield) break;
    std::this_thread::yield();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) : threads_(threads) {
  for (uint32_t i = 1; i < threads_; ++i) {
    workers_.emplace_back([this, i] { Work(i); });
  }
}

ThreadPool::~ThreadPool() {
  function_ = nullptr;
  run_.fetch_add(1, std::memory_order_release);
  run_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(absl::FunctionRef<void(uint32_t)> function) {
  function_ = &function;
  if (threads_ > 1) {
    run_.fetch_add(1, std::memory_order_release);
    run_.notify_all();
  }
  function(0);
  Barrier();
}

void ThreadPool::Barrier() {
  if (threads_ == 1) return;
  const uint32_t passed = barrier_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads_) {
    WaitForChange(barrier_, passed);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  barrier_.fetch_add(1, std::memory_order_release);
  barrier_.notify_all();
}

void ThreadPool::Work(uint32_t thread) {
  for (uint32_t seen = 0;; ++seen) {
    WaitForChange(run_, seen);
    if (function_ == nullptr) return;
    (*function_)(thread);
    Barrier();
  }
}

}  // namespace baton::model
