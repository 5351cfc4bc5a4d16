// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

std::vector<float> Dequantize(TensorType type, const std::string& bytes, uint64_t begin,
                              size_t count) {
  TensorView tensor;
  tensor.type = type;
  tensor.data = std::as_bytes(std::span(bytes));
  std::vector<float> values(count);
  DequantizeRange(tensor, begin, values);
  return values;
}

// Nibble i of a block, where value i and i + 16 share a byte.
std::string Nibbles(const std::vector<int>& values) {
  std::string bytes;
  for (size_t i = 0; i < 16; ++i) bytes += static_cast<char>(values[i] | values[i + 16] << 4);
  return bytes;
}

TEST(DequantizeRange, EveryHalfIsExact) {
  std::string bytes;
  for (uint32_t half = 0; half < 0x10000; ++half) bytes += Bytes(static_cast<uint16_t>(half));
  const std::vector<float> values = Dequantize(TensorType::kF16, bytes, 0, 0x10000);
  for (uint32_t half = 0; half < 0x10000; ++half) {
    // By the definition: (-1)^s · 2^(e-15) · 1.m, or 2^-14 · 0.m when e is 0.
    const int exponent = (half >> 10) & 31, mantissa = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;
    const double expected =
        exponent == 31  ? (mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : NAN)
        : exponent == 0 ? sign * std::ldexp(mantissa, -24)
                        : sign * std::ldexp(1024 + mantissa, exponent - 25);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[half]));
    } else {
      ASSERT_EQ(values[half], static_cast<float>(expected)) << half;
      ASSERT_EQ(std::signbit(values[half]), std::signbit(expected)) << half;
    }
  }
}

TEST(DequantizeRange, FloatsAndBfloatsKeepTheirBits) {
  const std::string floats = Bytes(1.5f) + Bytes(-0.0f) + Bytes(3e38f);
  EXPECT_EQ(Dequantize(TensorType::kF32, floats, 1, 2), (std::vector<float>{-0.0f, 3e38f}));
  const std::string halves = Bytes<uint16_t>(0x3F80) + Bytes<uint16_t>(0xC049);
  EXPECT_EQ(Dequantize(TensorType::kBf16, halves, 0, 2),
            (std::vector<float>{1.0f, std::bit_cast<float>(0xC0490000u)}));
}

TEST(DequantizeRange, BlocksFollowTheirDefinition) {
  std::vector<int> q(32);
  for (int i = 0; i < 32; ++i) q[i] = (i * 7 + 3) % 16;
  const std::string half = Bytes<uint16_t>(0x3800), three = Bytes<uint16_t>(0x4200);  // 0.5, 3
  const std::string zeros(18, '\0');

  const std::vector<float> q4_0 = Dequantize(TensorType::kQ4_0, zeros + half + Nibbles(q), 32, 32);
  const std::vector<float> q4_1 = Dequantize(TensorType::kQ4_1, half + three + Nibbles(q), 0, 32);
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(i * 8 - 128);
  const std::vector<float> q8_0 = Dequantize(TensorType::kQ8_0, half + bytes, 0, 32);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(q4_0[i], 0.5f * static_cast<float>(q[i] - 8));
    EXPECT_EQ(q4_1[i], 0.5f * static_cast<float>(q[i]) + 3);
    EXPECT_EQ(q8_0[i], 0.5f * static_cast<float>(i * 8 - 128));
  }
}

}  // namespace
}  // namespace baton::checkpoint
