// SPDX-License-Identifier: Apache-2.0
// The emulator itself: what it computes, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

struct Values {
  float value[256];
};

TEST(Simt, ThreadsSeeWhatOthersWroteBeforeTheBarrier) {
  std::vector<float> out(3 * 256);
  simt::Launch({3}, {256}, 0, [&] {
    BATON_SHARED(Values, shared);
    shared.value[ThreadIndex()] = static_cast<float>(ThreadIndex() + 1000 * BlockIndex().x);
    SyncBlock();
    out[BlockIndex().x * 256 + ThreadIndex()] = shared.value[255 - ThreadIndex()];
  });
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(out[i], 255 - i);
    EXPECT_EQ(out[512 + i], 2255 - i);
  }
}

TEST(Simt, SharedMemoryIsNanUntilItIsWrittenInEveryBlock) {
  uint32_t nans = 0;
  simt::Launch({2}, {32}, 0, [&] {
    BATON_SHARED(Values, shared);
    if (std::isnan(shared.value[ThreadIndex()])) AtomicAdd(&nans, 1u);
    shared.value[ThreadIndex()] = 1;
  });
  EXPECT_EQ(nans, 64u);
}

TEST(Simt, ShufflesExchangeWithinAWarp) {
  std::vector<unsigned> by_xor(64), from_lane(64);
  simt::Launch({1}, {64}, 0, [&] {
    by_xor[ThreadIndex()] = ShuffleXor(ThreadIndex(), 5u);
    from_lane[ThreadIndex()] = Shuffle(ThreadIndex(), 3);
  });
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(by_xor[i], i ^ 5u);
    EXPECT_EQ(from_lane[i], i / 32 * 32 + 3);
  }
}

// Threads that have ended do not count.
TEST(Simt, BarrierGoesOnWithoutThreadsThatHaveEnded) {
  uint32_t reached = 0;
  simt::Launch({1}, {96}, 0, [&] {
    if (ThreadIndex() >= 64) return;
    SyncBlock();
    AtomicAdd(&reached, 1u);
  });
  EXPECT_EQ(reached, 64u);
}

TEST(Simt, CopyIsThereOnlyAfterItsGroupIsWaitedFor) {
  struct Shared {
    alignas(16) float first[4], second[4];
  };
  alignas(16) const float source[4] = {1, 2, 3, 4};
  simt::Launch({1}, {32}, 0, [&] {
    BATON_SHARED(Shared, shared);
    if (ThreadIndex() != 0) return;
    CopyAsync16(shared.first, source, true);
    CommitCopies();
    CopyAsync16(shared.second, source, false);
    CommitCopies();
    WaitCopies<1>();
    EXPECT_EQ(shared.first[3], 4);
    EXPECT_TRUE(std::isnan(shared.second[3]));
    WaitCopies<0>();
    EXPECT_EQ(shared.second[3], 0);
  });
}

// Fragments as the PTX manual has them, against the plain product.
TEST(Simt, MatrixProductIsThatOfItsFragments) {
  float a[16][16], b[16][8], c[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>((i * 7 + k * 3) % 11 - 5);
    for (int n = 0; n < 8; ++n) {
      b[i][n] = static_cast<float>((i * 5 + n) % 9 - 4);
      c[i][n] = static_cast<float>(i - n);
    }
  }
  simt::Launch({1}, {32}, 0, [&] {
    const unsigned g = Lane() / 4, t = Lane() % 4;
    const uint32_t words[4] = {FloatsToBf16(a[g][2 * t], a[g][2 * t + 1]),
                               FloatsToBf16(a[g + 8][2 * t], a[g + 8][2 * t + 1]),
                               FloatsToBf16(a[g][2 * t + 8], a[g][2 * t + 9]),
                               FloatsToBf16(a[g + 8][2 * t + 8], a[g + 8][2 * t + 9])};
    float sum[4] = {c[g][2 * t], c[g][2 * t + 1], c[g + 8][2 * t], c[g + 8][2 * t + 1]};
    Mma(sum, words, FloatsToBf16(b[2 * t][g], b[2 * t + 1][g]),
        FloatsToBf16(b[2 * t + 8][g], b[2 * t + 9][g]));
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = g + i / 2 * 8, n = 2 * t + i % 2;
      float expected = c[row][n];
      for (int k = 0; k < 16; ++k) expected += a[row][k] * b[k][n];
      EXPECT_EQ(sum[i], expected);
    }
  });
}

TEST(Simt, CodesBecomeBf16Exactly) {
  for (int code = -128; code < 128; ++code) {
    const auto byte = static_cast<uint32_t>(code) & 0xff;
    const uint32_t pair = CodesToBf16(byte | (0x55u << 8) | (byte ^ 0xff) << 16 | 0xaau << 24);
    EXPECT_EQ(LowBf16(pair), static_cast<float>(code));
    EXPECT_EQ(HighBf16(pair), static_cast<float>(-1 - code));
  }
}

TEST(Simt, EverySchedulePassesEveryThread) {
  for (auto schedule :
       {simt::Schedule::kInOrder, simt::Schedule::kReversed, simt::Schedule::kRandom}) {
    simt::SetSchedule(schedule);
    std::vector<int> passed(128);
    simt::Launch({1}, {128}, 0, [&] {
      for (int i = 0; i < 3; ++i) {
        ++passed[ThreadIndex()];
        SyncWarp();
        SyncBlock();
      }
    });
    EXPECT_EQ(passed, std::vector<int>(128, 3));
  }
  simt::SetSchedule(simt::Schedule::kInOrder);
}

using SimtDeathTest = ::testing::Test;

TEST(SimtDeathTest, BarrierThatSomeNeverReachIsADeadlock) {
  EXPECT_DEATH(simt::Launch({1}, {64}, 0,
                            [] {
                              if (ThreadIndex() < 32) SyncBlock();
                              if (ThreadIndex() >= 32) {
                                SyncWarp();
                                while (ShuffleXor(1u, 1u) == 1) {
                                  if (ThreadIndex() == 40) SyncBlock();
                                }
                              }
                            }),
               "threads of a warp meet at different|deadlock");
}

TEST(SimtDeathTest, LanesAtDifferentInstructionsAreNamed) {
  EXPECT_DEATH(simt::Launch({1}, {32}, 0,
                            [] {
                              if (Lane() < 7) {
                                SyncWarp();
                              } else {
                                ShuffleXor(1u, 1u);
                              }
                            }),
               "different instructions.*waits at");
}

TEST(SimtDeathTest, KernelWithOtherSharedMemoryThanLaunchedIsRefused) {
  EXPECT_DEATH(simt::Launch({1}, {32}, 64,
                            [] {
                              BATON_DYNAMIC_SHARED(Values, shared);
                              (void)shared;
                            }),
               "another amount of shared memory");
}

}  // namespace
}  // namespace baton::gpu
