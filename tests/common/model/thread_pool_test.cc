// SPDX-License-Identifier: Apache-2.0
#include "common/model/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <span>
#include <thread>
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

TEST(ThreadPool, RunsOnAsManyThreadsAsWerePlaced) {
  ThreadPool pool(4);
  const std::vector<uint32_t> cpus = {0, 0, 0, 0, 0, 0};
  std::vector<int> rounds(4);  // plain: only Run orders them
  std::atomic<int> wrong{0};
  std::thread main([&] {  // pinned by Place, and not to stay so
    for (int round = 0; round < 300; ++round) {
      const uint32_t active = 1 + static_cast<uint32_t>(round * 7 % 4);
      pool.Place(std::span(cpus).first(active));
      EXPECT_EQ(pool.active(), active);
      const int before = rounds[active - 1];
      pool.Run([&](uint32_t thread) {
        ++rounds[thread];
        pool.Barrier();
        wrong += rounds[active - 1] != before + 1;
      });
    }
    pool.Place(cpus);
    EXPECT_EQ(pool.active(), 4u);
  });
  main.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(rounds[0], 300);
  EXPECT_EQ(rounds[3], 75);
}

TEST(ThreadPool, PlacePinsTheThreads) {
  ThreadPool pool(2);
  std::thread main([&pool] {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    uint32_t cpu = 0;
    while (!CPU_ISSET(cpu, &allowed)) ++cpu;
    pool.Place(std::vector<uint32_t>{cpu, cpu});
    std::atomic<int> pinned{0};
    pool.Run([&](uint32_t) {
      cpu_set_t own;
      pinned += sched_getaffinity(0, sizeof(own), &own) == 0 && CPU_COUNT(&own) == 1 &&
                CPU_ISSET(cpu, &own);
    });
    EXPECT_EQ(pinned, 2);
  });
  main.join();
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
