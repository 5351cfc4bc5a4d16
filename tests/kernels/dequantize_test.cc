// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/half_float.h"

namespace baton::kernels {
namespace {

std::vector<float> Dequantize(WeightType type, const std::vector<uint8_t>& bytes, uint32_t inputs) {
  std::vector<float> out(inputs);
  DequantizeRow({type, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), 1, inputs},
                0, out.data());
  return out;
}

TEST(HalfToFloat, CoversNormalSubnormalInfiniteAndNan) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x83ff), -1023 * 0x1p-24f);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(HalfToFloat(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7e01)));
}

TEST(HalfToFloat, AgreesWithTheProcessorOnEveryValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float expected = testing::ProcessorHalfToFloat(half), actual = HalfToFloat(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(actual, expected) << bits;
    }
  }
}

TEST(FloatToBf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBf16(1.0f + 0x1p-8f), 0x3f80);             // tie to even
  EXPECT_EQ(FloatToBf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // above the tie
  EXPECT_EQ(FloatToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);         // tie to even, upwards
  EXPECT_EQ(FloatToBf16(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(NAN))));
}

TEST(DequantizeRow, ReadsQ8Blocks) {
  std::vector<uint8_t> block(34);
  block[1] = 0x38;  // 0.5
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<uint8_t>(i - 16);
  const auto values = Dequantize(WeightType::kQ8_0, block, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], 0.5f * static_cast<float>(i - 16));
}

TEST(DequantizeRow, PutsLowNibblesFirst) {
  std::vector<uint8_t> q4_0(18), q4_1(20);
  q4_0[1] = q4_1[1] = 0x38;  // scale 0.5
  q4_1[3] = 0x3c;            // minimum 1
  for (int i = 0; i < 16; ++i) {
    q4_0[2 + i] = q4_1[4 + i] = static_cast<uint8_t>(i | (15 - i) << 4);
  }
  const auto symmetric = Dequantize(WeightType::kQ4_0, q4_0, 32);
  const auto affine = Dequantize(WeightType::kQ4_1, q4_1, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(symmetric[i], 0.5f * static_cast<float>(i - 8));
    EXPECT_EQ(symmetric[16 + i], 0.5f * static_cast<float>(7 - i));
    EXPECT_EQ(affine[i], 0.5f * static_cast<float>(i) + 1);
    EXPECT_EQ(affine[16 + i], 0.5f * static_cast<float>(15 - i) + 1);
  }
}

}  // namespace
}  // namespace baton::kernels
