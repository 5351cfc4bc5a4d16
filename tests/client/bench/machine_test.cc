// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/machine.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

TEST(PeakOf, IsThatOfTheInstructionAFormatIsMadeOf) {
  const std::vector<InstructionPeak> peaks = {
      {"vpdpbusd zmm", Element::kInt8, true, {500, 490}},
      {"vdpbf16ps zmm", Element::kBf16, true, {250, 240}},
      {"vfmadd231ps zmm", Element::kF32, true, {120, 110}},
      {"vpmaddubsw ymm", Element::kInt8, false, {470, 460}},
      {"vfmadd231ps ymm", Element::kF32, false, {118, 110}}};
  EXPECT_EQ(PeakOf(peaks, "avx512/w4-affine-a8-g32/2"), 500);
  EXPECT_EQ(PeakOf(peaks, "avx512/bf16/1"), 250);
  EXPECT_EQ(PeakOf(peaks, "avx512/attention-bf16/1"), 250);
  EXPECT_EQ(PeakOf(peaks, "avx512/f32/1"), 120);
  EXPECT_EQ(PeakOf(peaks, "avx2/w8a8-g32/2"), 470);
  // No bf16 instruction in AVX2: widened.
  EXPECT_EQ(PeakOf(peaks, "avx2/bf16/1"), 118);
  EXPECT_EQ(PeakOf(peaks, "generic/f32/1"), 118);
  EXPECT_EQ(PeakOf({}, "avx512/bf16/1"), 0);
}

TEST(MeasureInstructions, EachDoesWhatACoreCan) {
  const std::vector<InstructionPeak> peaks = MeasureInstructions(1, 0.05);
  if (peaks.empty()) GTEST_SKIP() << "this CPU has no AVX2";
  for (const InstructionPeak& peak : peaks) {
    // From a fiftieth of an instruction in a nanosecond, on a loaded machine, to
    // three in a cycle at 6 GHz.
    const double operations = (peak.avx512 ? 64 : 32) * 2 /
                              (peak.element == Element::kInt8   ? 1.0
                               : peak.element == Element::kBf16 ? 2.0
                                                                : 4.0);
    EXPECT_GT(peak.rate.best, 0.02e9 * operations) << peak.instruction;
    EXPECT_LT(peak.rate.best, 18e9 * operations) << peak.instruction;
  }
}

TEST(Reader, ReadsCachesAndMemory) {
  const CacheSizes caches = ReadCacheSizes();
  EXPECT_GE(caches.l2, 64u << 10);
  EXPECT_GE(caches.l3, caches.l2);
  // Small ones, so that the test needs little memory.
  const CacheSizes small = {.l2 = 256 << 10, .l3 = 1 << 20};
  for (MemoryLevel level : {MemoryLevel::kL2, MemoryLevel::kL3, MemoryLevel::kMemory}) {
    const Rate rate = Reader(level, 2, small).Measure(0.02);
    EXPECT_GT(rate.best, 1e8) << MemoryLevelName(level);
    EXPECT_LT(rate.best, 1e13) << MemoryLevelName(level);
  }
}

TEST(MemoryMode, SaysWhetherThreadsReadFasterTogether) {
  EXPECT_EQ(MemoryMode(32e9, 34e9), "one link");
  EXPECT_EQ(MemoryMode(32e9, 45e9), "changing");
  EXPECT_EQ(MemoryMode(32e9, 63e9), "several links");
}

}  // namespace
}  // namespace baton::cli
