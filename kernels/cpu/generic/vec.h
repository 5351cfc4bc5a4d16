// SPDX-License-Identifier: Apache-2.0
// Four float32 lanes (SSE2, NEON) and the functions built on them.
#pragma once

#include <cstdint>
#include <cstring>

namespace baton::kernels::generic {

using Vec = float __attribute__((vector_size(16)));
using IntVec = int32_t __attribute__((vector_size(16)));
inline constexpr uint32_t kLanes = 4;

inline Vec Load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
inline void Store(float* to, Vec v) { std::memcpy(to, &v, sizeof(v)); }
inline Vec Splat(float value) { return Vec{value, value, value, value}; }
inline float Sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

// 2^x to 2e-7 relative; 0 below -126, infinity from 128 on, NaN for NaN.
inline Vec Exp2(Vec x) {
  const Vec low = Splat(-127), high = Splat(128);
  x = x < low ? low : x;  // NaN passes both
  x = x > high ? high : x;
  // Adding 1.5 * 2^23 leaves round(x) in the low mantissa bits.
  const Vec magic = Splat(12582912.0f);
  const Vec shifted = x + magic;
  const Vec f = x - (shifted - magic);  // in [-0.5, 0.5]
  Vec p = Splat(1.5403530393e-4f);      // Taylor: ln(2)^i / i!
  p = p * f + Splat(1.3333558146e-3f);
  p = p * f + Splat(9.6181291076e-3f);
  p = p * f + Splat(5.5504108665e-2f);
  p = p * f + Splat(2.4022650696e-1f);
  p = p * f + Splat(6.9314718056e-1f);
  p = p * f + Splat(1);
  IntVec bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  const IntVec exponent = ((bits - 0x4b400000) + 127) << 23;  // 0 at -127, infinity at 128
  Vec scale;
  std::memcpy(&scale, &exponent, sizeof(scale));
  return p * scale;
}

}  // namespace baton::kernels::generic
