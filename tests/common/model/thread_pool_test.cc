// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace baton::model {
namespace {

TEST(ThreadPool, RunsEveryIndexOnceAndThreadZeroIsTheCaller) {
  for (uint32_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> calls(threads);
    std::thread::id zero;
    for (int round = 0; round < 100; ++round) {
      pool.Run([&](uint32_t thread) {
        ++calls[thread];
        if (thread == 0) zero = std::this_thread::get_id();
      });
    }
    for (const auto& count : calls) EXPECT_EQ(count, 100);
    EXPECT_EQ(zero, std::this_thread::get_id());
  }
}

TEST(ThreadPool, BarrierShowsWhatTheOthersWrote) {
  constexpr uint32_t kThreads = 3;
  ThreadPool pool(kThreads);
  std::vector<int> values(kThreads);  // plain: only the barrier orders them
  std::atomic<int> wrong{0};
  pool.Run([&](uint32_t thread) {
    for (int round = 1; round <= 500; ++round) {
      values[thread] = round;
      pool.Barrier();
      for (int value : values) wrong += value != round;
      pool.Barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, WakesThreadsThatHaveGoneToSleep) {
  ThreadPool pool(2);
  std::atomic<int> calls{0};
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // beyond spinning
    pool.Run([&](uint32_t thread) {
      // The caller comes late, so that the worker sleeps in the barrier, too.
      if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      pool.Barrier();
      ++calls;
    });
  }
  EXPECT_EQ(calls, 6);
}

TEST(ThreadPool, EndsWithoutARun) { ThreadPool pool(4); }

TEST(Part, CoversTheRangeInBalancedPieces) {
  for (uint32_t count : {0u, 1u, 7u, 100u}) {
    for (uint32_t parts : {1u, 2u, 3u, 8u}) {
      uint32_t at = 0;
      for (uint32_t i = 0; i < parts; ++i) {
        const Range part = Part(count, i, parts);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.size(), count / parts + 1);
        at = part.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

}  // namespace
}  // namespace baton::model
