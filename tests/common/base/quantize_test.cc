// SPDX-License-Identifier: Apache-2.0
#include "common/base/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "tests/testing/half_float.h"

namespace baton {
namespace {

using Values = std::array<float, kQuantGroup>;

Values Through(const BlockQuant& quant, void (*quantize)(const float*, std::byte*),
               const Values& x) {
  std::array<std::byte, 34> block;
  quantize(x.data(), block.data());
  Values y;
  Dequantize(quant, block.data(), 0, y);
  return y;
}
Values Q8(const Values& x) { return Through(kQuantQ8_0, QuantizeQ8_0, x); }
Values Q4(const Values& x) { return Through(kQuantQ4_0, QuantizeQ4_0, x); }

double SquaredError(const Values& x, const Values& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return sum;
}

Values Random(std::mt19937& random, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  Values x;
  for (float& value : x) value = static_cast<float>(normal(random));
  return x;
}

// What the least squared error of a step can be: over a fine sweep of steps of
// either sign.
double BestFourBitError(const Values& x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  double best = std::numeric_limits<double>::infinity();
  for (int i = 1; i <= 4000; ++i) {
    for (const double sign : {-1, 1}) {
      const double step = HalfToFloat(FloatToHalf(static_cast<float>(sign * largest * i / 16000)));
      double error = 0;
      for (const float value : x) {
        const double q = std::clamp(std::nearbyint(value / step), -8.0, 7.0);
        error += (value - q * step) * (value - q * step);
      }
      best = std::min(best, error);
    }
  }
  return best;
}

TEST(FloatToHalf, AgreesWithTheCompilerAroundEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
      continue;
    }
    ASSERT_EQ(FloatToHalf(value), half);
    const float next = HalfToFloat(static_cast<uint16_t>(bits + 1));
    if (!std::isfinite(value) || std::isnan(next)) continue;
    // Half way up to the next, and to both sides of it.
    const float middle = std::isinf(next) ? std::copysign(65520.0f, value) : (value + next) / 2;
    for (const float near : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, next)}) {
      ASSERT_EQ(FloatToHalf(near), testing::ProcessorFloatToHalf(near)) << near;
    }
  }
  EXPECT_EQ(FloatToHalf(1e30f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e-30f), 0x8000);
}

TEST(Quantize, EightBitsAreWithinHalfAStep) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const Values x = Random(random, std::pow(10.0, round % 7 - 3));
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::fabs(value));
    const Values y = Q8(x);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], largest / 127 * 0.51f);
  }
}

TEST(Quantize, FourBitsAreNearlyTheBestThereAre) {
  std::mt19937 random(2);
  double best = 0, found = 0, plain = 0;
  for (int round = 0; round < 100; ++round) {
    const Values x = Random(random, std::pow(10.0, round % 5 - 3));
    double norm = 0;
    float extreme = 0;
    for (const float value : x) {
      norm += double{value} * value;
      if (std::fabs(value) > std::fabs(extreme)) extreme = value;
    }
    best += BestFourBitError(x) / norm;
    found += SquaredError(x, Q4(x)) / norm;
    const float step = HalfToFloat(FloatToHalf(extreme / -8));
    Values y;
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = step * std::clamp(std::nearbyint(x[i] / step), -8.0f, 7.0f);
    }
    plain += SquaredError(x, y) / norm;
  }
  EXPECT_LT(found, 1.1 * best);
  EXPECT_LT(found, 0.9 * plain);
}

TEST(Quantize, ValuesOnTheGridStayAsTheyAre) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const float scale = HalfToFloat(static_cast<uint16_t>(0x3000 + random() % 0x4000));
    Values eight, four;
    for (size_t i = 0; i < eight.size(); ++i) {
      eight[i] = scale / 64 * static_cast<float>(static_cast<int>(random() % 255) - 127);
      four[i] = scale * static_cast<float>(static_cast<int>(random() % 16) - 8);
    }
    eight[5] = scale / 64 * 127;
    four[7] = scale * -8;
    EXPECT_EQ(Q8(eight), eight);
    EXPECT_EQ(Q4(four), four);
  }
}

TEST(Quantize, ExtremesStayFiniteAndZerosStayZero) {
  const Values zeros = {};
  EXPECT_EQ(Q8(zeros), zeros);
  EXPECT_EQ(Q4(zeros), zeros);
  Values tiny = {};
  tiny[3] = 1e-38f;
  tiny[4] = -1e-42f;
  EXPECT_EQ(Q8(tiny), zeros);
  EXPECT_EQ(Q4(tiny), zeros);
  Values small = {};
  for (size_t i = 0; i < small.size(); ++i) small[i] = 0x1p-22f * static_cast<float>(i % 8);
  EXPECT_LE(SquaredError(small, Q4(small)), 32 * 0x1p-50);
  Values one = {};
  one[31] = 3;
  EXPECT_NEAR(Q8(one)[31], 3, 2e-3);
  EXPECT_NEAR(Q4(one)[31], 3, 2e-3);
  EXPECT_EQ(Q4(one)[0], 0);
}

TEST(Quantize, WhatIsNotFiniteShows) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Values x = {};
    x[9] = bad;
    for (const float value : Q8(x)) EXPECT_TRUE(std::isnan(value));
    for (const float value : Q4(x)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Quantize, StoredCodesComeBack) {
  std::array<int8_t, kQuantGroup> codes;
  for (int i = 0; i < 32; ++i) codes[static_cast<size_t>(i)] = static_cast<int8_t>(i * 8 - 128);
  std::array<std::byte, 34> block;
  StoreQ8_0(FloatToHalf(0.25f), codes.data(), block.data());
  Values y;
  Dequantize(kQuantQ8_0, block.data(), 0, y);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], 0.25f * codes[i]);
  for (int8_t& code : codes) code = static_cast<int8_t>(code / 16);
  StoreQ4_0(FloatToHalf(3), codes.data(), block.data());
  Dequantize(kQuantQ4_0, block.data(), 0, y);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], 3.0f * codes[i]);
}

}  // namespace
}  // namespace baton
