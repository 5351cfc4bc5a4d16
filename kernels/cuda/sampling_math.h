// SPDX-License-Identifier: Apache-2.0
// common/sampling's arithmetic on the device, operation for operation.
#pragma once

#include "kernels/cuda/device/device.h"

namespace baton::gpu {

inline constexpr float kFloatMax = 3.402823466e+38f;

// A float as an integer of the same order; -0 counts as 0.
BATON_DEVICE uint32_t OrderedBits(float value) {
  const uint32_t bits = AsBits(AddRn(value, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
BATON_DEVICE float FromOrdered(uint32_t bits) {
  return AsFloat((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

BATON_DEVICE bool Finite(float value) { return (AsBits(value) & 0x7f800000u) != 0x7f800000u; }

BATON_DEVICE float ClampFinite(float value) {
  return value < -kFloatMax ? -kFloatMax : value > kFloatMax ? kFloatMax : value;
}

// exp((logit - max) * scale) on the grid of 2^-35: row_passes_code.h's Weigh.
BATON_DEVICE float WeightOf(float logit, float max, float scale) {
  constexpr float kToInteger = 12582912.0f, kToGrid = 0x1p-12f, kLog2E = 1.44269504f;
  float power = MulRn(scale, kLog2E);
  if (!(power <= kFloatMax)) power = kFloatMax;
  float x = MulRn(SubRn(logit, max), power);
  x = Most(x, -126.0f);
  const float shifted = AddRn(x, kToInteger);
  x = SubRn(x, SubRn(shifted, kToInteger));
  const uint32_t exponent = AsBits(shifted) << 23;
  float p = AddRn(MulRn(x, 0x1.5bba14p-10f), 0x1.3cea88p-7f);
  p = AddRn(MulRn(p, x), 0x1.c6b752p-5f);
  p = AddRn(MulRn(p, x), 0x1.ebf9bcp-3f);
  p = AddRn(MulRn(p, x), 0x1.62e42ap-1f);
  p = AddRn(MulRn(p, x), 1.0f);
  const float weight = AsFloat(AsBits(p) + exponent);
  return weight < kToGrid ? SubRn(AddRn(weight, kToGrid), kToGrid) : weight;
}

// Weights are multiples of 2^-35: sums of them as integers are exact, in any
// order, and so are the doubles that the CPU adds.
BATON_DEVICE uint64_t GridUnits(float weight) {
  return static_cast<uint64_t>(MulRn(weight, 0x1p35f));
}
BATON_DEVICE double UnitsToDouble(uint64_t units) {
  return MulRn(static_cast<double>(units), 0x1p-35);
}

union DoubleBits {
  double value;
  uint64_t bits;
};

// exact_math.h's ExactLog.
BATON_DEVICE double ExactLog(double x) {
  constexpr double kLn2High = 0x1.62e42fefap-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRootHalf = 0.70710678118654752;
  DoubleBits all{x};
  int exponent = static_cast<int>(all.bits >> 52) - 1022;
  DoubleBits mantissa;
  mantissa.bits = (all.bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1022} << 52;
  double m = mantissa.value;
  if (m < kRootHalf) {
    m = MulRn(m, 2.0);
    --exponent;
  }
  const double f = DivRn(SubRn(m, 1.0), AddRn(m, 1.0));
  const double square = MulRn(f, f);
  double series = 0;
  for (int term = 21; term >= 3; term -= 2) {
    series = MulRn(AddRn(series, DivRn(1.0, static_cast<double>(term))), square);
  }
  const auto e = static_cast<double>(exponent);
  const double twice = MulRn(2.0, f);
  const double low = AddRn(MulRn(twice, series), MulRn(e, kLn2Low));
  return AddRn(MulRn(e, kLn2High), AddRn(twice, low));
}

// philox.h, and sampler.h's CounterUniform.
BATON_DEVICE double CounterUniform(uint64_t seed, uint32_t choice, uint32_t output_index) {
  uint32_t counter[4] = {output_index, choice, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t word = uint64_t{counter[1]} << 32 | counter[0];
  return MulRn(static_cast<double>(word >> 11), 0x1p-53);
}

}  // namespace baton::gpu
