// SPDX-License-Identifier: Apache-2.0
#include "common/base/quantize.h"

#include <array>
#include <cstring>

#include "common/base/half_float.h"

namespace baton {
namespace {

// Four lanes, summed in one order whatever the compiler makes of them.
using Vec = float __attribute__((vector_size(16)));
constexpr uint32_t kLanes = 4, kVecs = kQuantGroup / kLanes;
constexpr uint16_t kHalfNan = 0x7e00;

Vec Splat(float value) { return Vec{value, value, value, value}; }
float Sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

struct Group {
  Vec x[kVecs];
  float squares = 0;  // sum of x^2
  float largest = 0;  // |x|
  float extreme = 0;  // the first x of that size
};

Group Load(const float* from) {
  Group group;
  std::memcpy(group.x, from, sizeof group.x);
  Vec squares = {};
  for (const Vec& x : group.x) squares += x * x;
  group.squares = Sum(squares);
  for (uint32_t i = 0; i < kQuantGroup; ++i) {
    const float size = from[i] < 0 ? -from[i] : from[i];
    if (size > group.largest) {
      group.largest = size;
      group.extreme = from[i];
    }
  }
  return group;
}

// True when no x is infinite or NaN.
bool IsFinite(const Group& group) {
  Vec zeros = {};
  for (const Vec& x : group.x) zeros += x * Splat(0);
  return Sum(zeros) == 0;
}

// Nearest whole numbers, ties to even, of what lies within [low, high].
Vec Round(Vec x, float low, float high) {
  x = x < Splat(low) ? Splat(low) : x;
  x = x > Splat(high) ? Splat(high) : x;
  const Vec magic = Splat(12582912.0f);  // 1.5 * 2^23
  return (x + magic) - magic;
}

// Codes nearest to x / step; zeros for a step of 0 or NaN.
std::array<int8_t, kQuantGroup> Codes(const Group& group, float step, float low, float high) {
  std::array<int8_t, kQuantGroup> codes = {};
  if (!(step < 0 || step > 0)) return codes;
  for (uint32_t v = 0; v < kVecs; ++v) {
    const Vec q = Round(group.x[v] / Splat(step), low, high);
    for (uint32_t i = 0; i < kLanes; ++i) {
      codes[v * kLanes + i] = static_cast<int8_t>(static_cast<int>(q[i]));
    }
  }
  return codes;
}

// The float16 step that fits best to codes round(x * inverse), and the squared
// error it leaves.
uint16_t FitStep(const Group& group, float inverse, float* error) {
  Vec products = {}, squares = {};
  for (const Vec& x : group.x) {
    const Vec q = Round(x * Splat(inverse), -8, 7);
    products += q * x;
    squares += q * q;
  }
  const float qx = Sum(products), qq = Sum(squares);
  const uint16_t step = FloatToHalf(qq > 0 ? qx / qq : 0);
  const float d = HalfToFloat(step);
  *error = group.squares - 2 * d * qx + d * d * qq;
  return step;
}

}  // namespace

void StoreQ8_0(uint16_t scale, const int8_t* codes, std::byte* block) {
  std::memcpy(block, &scale, sizeof scale);
  std::memcpy(block + sizeof scale, codes, kQuantGroup);
}

void StoreQ4_0(uint16_t scale, const int8_t* codes, std::byte* block) {
  std::memcpy(block, &scale, sizeof scale);
  block += sizeof scale;
  for (uint32_t i = 0; i < kQuantGroup / 2; ++i) {
    const int low = codes[i] + 8, high = codes[i + kQuantGroup / 2] + 8;
    block[i] = static_cast<std::byte>(low | high << 4);
  }
}

void QuantizeQ8_0(const float* x, std::byte* block) {
  const Group group = Load(x);
  const uint16_t scale = IsFinite(group) ? FloatToHalf(group.largest / 127) : kHalfNan;
  StoreQ8_0(scale, Codes(group, HalfToFloat(scale), -127, 127).data(), block);
}

void QuantizeQ4_0(const float* x, std::byte* block) {
  constexpr int kCandidates = 16;
  const Group group = Load(x);
  uint16_t scale = 0;
  if (!IsFinite(group)) {
    scale = kHalfNan;
  } else if (group.largest > 0) {
    float least = 0;
    for (int i = 0; i < kCandidates; ++i) {
      float error;
      const uint16_t step =
          FitStep(group, (-9 + 0.2f * static_cast<float>(i)) / group.extreme, &error);
      if (i > 0 && !(error < least)) continue;
      least = error;
      scale = step;
    }
  }
  StoreQ4_0(scale, Codes(group, HalfToFloat(scale), -8, 7).data(), block);
}

}  // namespace baton
