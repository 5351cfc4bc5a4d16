// SPDX-License-Identifier: Apache-2.0
// A vector of floats as 8-bit codes and one bf16 scale.
#pragma once

#include <bit>
#include <cstdint>

#include "common/base/half_float.h"

namespace baton::kernels {

// Magnitude bits of a float: larger magnitudes have larger bits, NaN the
// largest, so that an integer maximum never loses one.
inline int32_t MagnitudeBits(float value) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(value) & 0x7fffffff);
}

// The scale of a vector and what its elements are multiplied by.
struct Int8Scale {
  uint16_t bits = 0;  // bf16
  float inverse = 0;
};

// From the largest MagnitudeBits. Codes are taken with the scale as it was
// rounded, so rounding it adds no error: at worst the largest element is
// 127.25 steps. An infinity or NaN makes the scale NaN, which every score over
// the token becomes; magnitudes below 2^-100 count as zero.
inline Int8Scale ScaleOf(int32_t max_bits) {
  constexpr int32_t kInfinity = 0x7f800000, kTiny = (127 - 100) << 23;
  if (max_bits >= kInfinity) return {0x7fc0, 0};
  if (max_bits < kTiny) return {};
  const uint16_t bits = FloatToBf16(std::bit_cast<float>(max_bits) / 127);
  return {bits, 1 / Bf16ToFloat(bits)};
}

// To nearest, ties to even. REQUIRES: |value * inverse| < 128, or inverse is 0.
inline int8_t CodeOf(float value, float inverse) {
  // Adding 1.5 * 2^23 leaves the rounded value in the low bits.
  return static_cast<int8_t>(std::bit_cast<uint32_t>(value * inverse + 12582912.0f));
}

}  // namespace baton::kernels
