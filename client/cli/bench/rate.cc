// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/rate.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "common/cores/core_share.h"

namespace baton::cli {
namespace {

constexpr double kSlot = 1e-3;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct alignas(64) Counter {
  std::atomic<uint64_t> units{0};
};

// Keeps the calling thread on one CPU; its destructor lets it go.
class Pin final {
 public:
  Pin(const std::vector<uint32_t>& cpus, uint32_t thread) {
    if (pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[thread % cpus.size()], &one);
    pinned_ = pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
  }
  ~Pin() {
    if (pinned_) pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

// Threads that are joined on every way out.
class Helpers final {
 public:
  Helpers(const std::vector<uint32_t>& cpus, uint32_t threads, Counter* counters,
          absl::FunctionRef<uint64_t(uint32_t)> step) {
    for (uint32_t t = 1; t < threads; ++t) {
      threads_.emplace_back([this, t, counters, step, &cpus] {
        const Pin pin(cpus, t);
        while (!stop_.load(std::memory_order_relaxed)) counters[t].units += step(t);
      });
    }
  }
  ~Helpers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

Rate MeasureRate(uint32_t threads, double seconds, absl::FunctionRef<uint64_t(uint32_t)> step) {
  const auto counters = std::make_unique<Counter[]>(threads);
  const auto total = [&] {
    uint64_t sum = 0;
    for (uint32_t t = 0; t < threads; ++t) sum += counters[t].units;
    return sum;
  };
  std::vector<double> rates;
  // Those of the process: a model may have pinned the calling thread since.
  static const std::vector<uint32_t> cpus = cores::AllowedCpus();
  const Pin pin(cpus, 0);
  const Helpers helpers(cpus, threads, counters.get(), step);
  // A helper that has not started yet would cost the first slots.
  for (uint32_t t = 1; t < threads; ++t) {
    while (counters[t].units == 0) std::this_thread::yield();
  }
  const double end = Now() + seconds;
  do {
    // The clock outside, the counters inside: whoever is displaced between the
    // two makes the rate too low, never too high.
    const double start = Now();
    const uint64_t before = total();
    while (Now() - start < kSlot) counters[0].units += step(0);
    const uint64_t after = total();
    rates.push_back(static_cast<double>(after - before) / (Now() - start));
  } while (Now() < end);
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

}  // namespace baton::cli
