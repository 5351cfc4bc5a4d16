// SPDX-License-Identifier: Apache-2.0
// Threads that run one function together, with barriers inside.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton::model {

// The caller is thread 0. Waiting threads spin for about 50 microseconds, then
// sleep in the kernel: a machine shared with other work loses little to them.
//
// Thread safety: one Run or Place at a time; Barrier only inside Run.
class ThreadPool final {
 public:
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // How many there are, and how many of them take part in Run: at first all.
  uint32_t threads() const { return threads_; }
  uint32_t active() const { return active_; }

  // From the next Run on, thread i runs on CPU cpus[i] alone, and threads
  // beyond cpus.size() sleep. Pins the calling thread, too, which is to be the
  // one that calls Run. A CPU that this process must not use is ignored.
  // REQUIRES: cpus is not empty.
  void Place(std::span<const uint32_t> cpus);

  // Calls function(i) for every i < active() at once; returns when all have.
  void Run(absl::FunctionRef<void(uint32_t thread)> function);

  // Waits until every thread of this Run has come here; what they wrote before
  // is visible after.
  void Barrier();

 private:
  struct Worker {
    alignas(64) std::atomic<uint32_t> run{0};  // counts its Run calls
    std::thread thread;
  };
  void Work(uint32_t thread);
  // Returns when `word` is no longer `old`.
  void WaitForChange(std::atomic<uint32_t>& word, uint32_t old);
  // Adds one to `word` and wakes who waits for that.
  void Advance(std::atomic<uint32_t>& word);

  const uint32_t threads_;
  uint32_t active_;
  std::vector<int64_t> placed_;                                  // [threads]: CPU, or -1
  const absl::FunctionRef<void(uint32_t)>* function_ = nullptr;  // null: end
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> barrier_{0};  // counts barriers passed
  std::atomic<uint32_t> sleepers_{0};
  std::unique_ptr<Worker[]> workers_;  // [threads - 1]
};

// Part `index` of [0, count) cut into `parts` nearly equal ranges.
struct Range {
  uint32_t begin = 0, end = 0;
  uint32_t size() const { return end - begin; }
};
inline Range Part(uint32_t count, uint32_t index, uint32_t parts) {
  const auto cut = [&](uint32_t i) {
    return static_cast<uint32_t>(static_cast<uint64_t>(count) * i / parts);
  };
  return {cut(index), cut(index + 1)};
}

}  // namespace baton::model
