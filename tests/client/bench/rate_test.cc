// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/rate.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace baton::cli {
namespace {

// Takes at least 20 microseconds, so that no thread does more than 50,000 a
// second, and on a loaded machine fewer.
uint64_t Spin(uint32_t) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
  while (std::chrono::steady_clock::now() < end) {
  }
  return 1;
}

TEST(MeasureRate, NeverTellsMoreThanTheThreadsDid) {
  for (uint32_t threads : {1u, 2u}) {
    const Rate rate = MeasureRate(threads, 0.05, Spin);
    EXPECT_GT(rate.median, 0);
    EXPECT_GE(rate.best, rate.median);
    // A slot may begin inside a step of another thread, which counts whole: one
    // step in 50.
    EXPECT_LE(rate.best, threads * 50'000 * 1.03);
  }
}

TEST(MeasureRate, EveryThreadWorksAndCounts) {
  std::array<std::atomic<int>, 3> calls{};
  MeasureRate(3, 0.02, [&](uint32_t thread) {
    ++calls[thread];
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return uint64_t{1};
  });
  for (const auto& count : calls) EXPECT_GT(count, 0);
}

TEST(MeasureRate, MeasuresOneSlotHoweverShortTheTime) {
  EXPECT_GT(MeasureRate(1, 0, Spin).best, 0);
}

}  // namespace
}  // namespace baton::cli
