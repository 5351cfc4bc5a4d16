// SPDX-License-Identifier: Apache-2.0
// The one source of the row passes. Included by a file per instruction set,
// inside of a namespace of its own after kLanes is chosen by the compiler's
// flags; no other file may include it.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "common/sampling/row_passes.h"

namespace baton::sampling::BATON_ROW_PASSES {
namespace {

// Vectors of the compiler, as wide as the machine's registers.
#if defined(__AVX512F__)
constexpr size_t kLanes = 16;
#elif defined(__AVX2__)
constexpr size_t kLanes = 8;
#else
constexpr size_t kLanes = 4;
#endif
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
constexpr size_t kDoubles = kLanes == 16 ? 8 : 4;
using Doubles = double __attribute__((vector_size(kDoubles * sizeof(double))));

// Adding and taking away 1.5 x 2^23 rounds a float to an integer; 2^-12 rounds
// one that is below 2^-12 to a multiple of 2^-35, which larger ones are.
constexpr float kToInteger = 12582912.0f;
constexpr float kToGrid = 0x1p-12f;

constexpr float kLog2E = 1.44269504f;
// 2^x on [-1/2, 1/2] as 1 + x (c1 + x (c2 + ...)), fitted to the least relative
// error, 9e-8, by weighted least squares.
constexpr float kPowerTerms[] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f,
                                 0x1.ebf9bcp-3f,  0x1.62e42ap-1f, 1.0f};
constexpr float kLowestPower = -126;  // 2^-126 is far below the grid
constexpr float kMostSurprise = 87;   // likewise, of e^-87
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr int32_t kExponent = 0x7f800000;  // all ones in NaN and infinity

inline Floats Load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}
inline void Store(Floats values, float* to) { std::memcpy(to, &values, sizeof(values)); }
inline Ints AsInts(Floats values) { return (Ints)values; }      // NOLINT: reinterprets
inline Floats AsFloats(Ints values) { return (Floats)values; }  // NOLINT: reinterprets
inline Floats Max(Floats a, Floats b) {                         // of two that are no NaN
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
  return (Floats)_mm_max_ps((__m128)a, (__m128)b);
#else
  return a > b ? a : b;
#endif
}
inline Floats Min(Floats a, Floats b) { return -Max(-a, -b); }
inline Floats Where(Ints mask, Floats values) { return AsFloats(AsInts(values) & mask); }

inline uint64_t Bits(Ints mask) {
#if defined(__AVX512F__)
  return static_cast<uint32_t>(_mm512_movepi32_mask((__m512i)mask));
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)mask));
#else
  uint64_t bits = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) bits |= uint64_t{mask[lane] != 0} << lane;
  return bits;
#endif
}

// Exact sums of floats on the grid, in any order.
struct Sum {
  Doubles low = {}, high = {};

  void Add(Floats values) {
#if defined(__AVX512F__)
    const auto all = (__m512)values;
    low += (Doubles)_mm512_cvtps_pd(_mm512_castps512_ps256(all));
    high += (Doubles)_mm512_cvtps_pd(_mm512_extractf32x8_ps(all, 1));
#elif defined(__AVX2__)
    const auto all = (__m256)values;
    low += (Doubles)_mm256_cvtps_pd(_mm256_castps256_ps128(all));
    high += (Doubles)_mm256_cvtps_pd(_mm256_extractf128_ps(all, 1));
#else
    low += __builtin_convertvector(values, Doubles);
#endif
  }
  double Total() const {
    const Doubles both = low + high;
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd((__m512d)both);
#else
    return (both[0] + both[1]) + (both[2] + both[3]);
#endif
  }
};

inline Floats RoundToGrid(Floats values) {
  return values < kToGrid ? (values + kToGrid) - kToGrid : values;
}

// Vectors that go through each step together: one alone would wait for its own
// last result most of the time.
constexpr size_t kTogether = 4;
struct Batch {
  Floats lanes[kTogether];
};
template <typename Step>
inline void ForEach(Step step) {
#pragma GCC unroll 4
  for (size_t k = 0; k < kTogether; ++k) step(k);
}

// What a weight is computed with: 2^((logit - max) * scale).
struct PowerOfTwo {
  float max, scale;

  explicit PowerOfTwo(Distribution distribution)
      : max(distribution.max), scale(distribution.scale * kLog2E) {
    if (!(scale <= kFloatMax)) scale = kFloatMax;  // no infinity: it is multiplied by zeros
  }
};

// 2^x for x <= 0 as 2^n times a polynomial of the rest.
inline void WeighBatch(const float* from, PowerOfTwo power, Batch& out) {
  Batch x, p;
  Ints exponent[kTogether];
  ForEach([&](size_t k) { x.lanes[k] = (Load(from + k * kLanes) - power.max) * power.scale; });
  ForEach([&](size_t k) { x.lanes[k] = Max(x.lanes[k], kLowestPower + Floats{}); });
  ForEach([&](size_t k) {
    const Floats shifted = x.lanes[k] + kToInteger;
    x.lanes[k] = x.lanes[k] - (shifted - kToInteger);
    exponent[k] = AsInts(shifted) << 23;
  });
  ForEach([&](size_t k) { p.lanes[k] = x.lanes[k] * kPowerTerms[0] + kPowerTerms[1]; });
#pragma GCC unroll 4
  for (size_t term = 2; term < 6; ++term) {
    ForEach([&](size_t k) { p.lanes[k] = p.lanes[k] * x.lanes[k] + kPowerTerms[term]; });
  }
  // Times 2^n. What would be subnormal is far below the grid, and rounds to 0.
  ForEach(
      [&](size_t k) { out.lanes[k] = RoundToGrid(AsFloats(AsInts(p.lanes[k]) + exponent[k])); });
}

// Calls body(group, pointers) for each group, the last one from padded copies
// of the arrays. `pad` fills the copies of inputs.
template <typename Body>
inline void ForEachGroup(size_t size, const float* values, float pad, Body body) {
  size_t group = 0;
  for (; (group + 1) * kGroup <= size; ++group) body(group, values + group * kGroup);
  if (const size_t rest = size - group * kGroup; rest > 0) {
    float padded[kGroup];
    for (float& value : padded) value = pad;
    std::memcpy(padded, values + group * kGroup, rest * sizeof(float));
    body(group, static_cast<const float*>(padded));
  }
}

// The same with a second array, padded with zeros.
template <typename Body>
inline void ForEachGroup2(size_t size, const float* values, float pad, const float* weights,
                          Body body) {
  size_t group = 0;
  for (; (group + 1) * kGroup <= size; ++group) {
    body(group, values + group * kGroup, weights + group * kGroup);
  }
  if (const size_t rest = size - group * kGroup; rest > 0) {
    float padded[kGroup], padded_weights[kGroup] = {};
    for (float& value : padded) value = pad;
    std::memcpy(padded, values + group * kGroup, rest * sizeof(float));
    std::memcpy(padded_weights, weights + group * kGroup, rest * sizeof(float));
    body(group, static_cast<const float*>(padded), static_cast<const float*>(padded_weights));
  }
}

inline float MaxOf(Floats values) {
#if defined(__SSE2__)
#if defined(__AVX512F__)
  const auto sixteen = (__m512)values;
  const __m256 all =
      _mm256_max_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
#elif defined(__AVX2__)
  const auto all = (__m256)values;
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
#else
  auto four = (__m128)values;
#endif
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
#else
  float best = values[0];
  for (size_t lane = 1; lane < kLanes; ++lane) best = values[lane] > best ? values[lane] : best;
  return best;
#endif
}

bool Scan(const float* values, size_t size, float* group_max) {
  Ints bad = {};
  ForEachGroup(size, values, -kFloatMax, [&](size_t group, const float* in) {
    Floats best = Load(in);
    bad |= (AsInts(best) & kExponent) == kExponent;
    for (size_t i = kLanes; i < kGroup; i += kLanes) {
      const Floats next = Load(in + i);
      bad |= (AsInts(next) & kExponent) == kExponent;
      best = Max(best, next);
    }
    group_max[group] = MaxOf(best);
  });
  return Bits(bad) == 0;
}

double WeighRow(const float* logits, size_t size, Distribution distribution, float* weights,
                double* group_sums) {
  const PowerOfTwo power(distribution);
  double total = 0;
  ForEachGroup(size, logits, -kFloatMax, [&](size_t group, const float* in) {
    float out[kGroup];
    Sum sum;
    const bool whole = (group + 1) * kGroup <= size;
    float* to = whole ? weights + group * kGroup : out;
    for (size_t i = 0; i < kGroup; i += kTogether * kLanes) {
      Batch batch;
      WeighBatch(in + i, power, batch);
      ForEach([&](size_t k) { Store(batch.lanes[k], to + i + k * kLanes); });
      ForEach([&](size_t k) { sum.Add(batch.lanes[k]); });
    }
    if (!whole) {
      // The padding has weights too when the scale is tiny: count what is there.
      const size_t rest = size - group * kGroup;
      std::memcpy(weights + group * kGroup, out, rest * sizeof(float));
      sum = {};
      for (size_t i = 0; i < rest; ++i) sum.low[0] += out[i];
    }
    group_sums[group] = sum.Total();
    total += group_sums[group];
  });
  return total;
}

// (max - logit) * scale; not infinite, since it is multiplied by zeros.
inline Floats SurpriseOf(Floats logits, Distribution distribution) {
  return Min((distribution.max - logits) * distribution.scale, kMostSurprise + Floats{});
}

double Surprise(const float* logits, const float* weights, size_t size, Distribution distribution) {
  Sum sum;
  ForEachGroup2(size, logits, distribution.max, weights,
                [&](size_t, const float* in, const float* weight) {
                  for (size_t i = 0; i < kGroup; i += kLanes) {
                    const Floats surprise = SurpriseOf(Load(in + i), distribution);
                    sum.Add(RoundToGrid(Load(weight + i) * surprise));
                  }
                });
  return sum.Total();
}

void Typicality(const float* logits, size_t size, Distribution distribution, float mean,
                float* keys, float* group_max) {
  ForEachGroup(size, logits, -kFloatMax, [&](size_t group, const float* in) {
    const size_t begin = group * kGroup;
    const bool whole = begin + kGroup <= size;
    float copy[kGroup];
    float* out = whole ? keys + begin : copy;
    Floats best = -kFloatMax + Floats{};
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const Floats away = SurpriseOf(Load(in + i), distribution) - mean;
      const Floats key = Min(away, -away);
      best = Max(best, key);
      Store(key, out + i);
    }
    if (!whole) std::memcpy(keys + begin, copy, (size - begin) * sizeof(float));
    group_max[group] = MaxOf(best);
  });
}

template <bool kWeighted>
double Split(const float* keys, const float* weights, size_t size, float low, float high,
             uint64_t* group_bits) {
  Sum sum;
  uint64_t count = 0;
  const auto body = [&](size_t group, const float* in, const float* weight) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const Floats key = Load(in + i);
      const Ints above = key > high;
      bits |= Bits((key >= low) & ~above) << i;
      if constexpr (kWeighted) {
        sum.Add(Where(above, Load(weight + i)));
      } else {
        count += static_cast<uint64_t>(std::popcount(Bits(above)));
      }
    }
    group_bits[group] = bits;
  };
  if constexpr (kWeighted) {
    ForEachGroup2(size, keys, -kFloatMax, weights, body);
  } else {
    ForEachGroup(size, keys, -kFloatMax,
                 [&](size_t group, const float* in) { body(group, in, nullptr); });
  }
  if (const size_t rest = size % kGroup; rest > 0) {  // padding is no element
    group_bits[size / kGroup] &= (uint64_t{1} << rest) - 1;
  }
  return kWeighted ? sum.Total() : static_cast<double>(count);
}

double SplitRow(const float* keys, const float* weights, size_t size, float low, float high,
                uint64_t* group_bits) {
  return weights != nullptr ? Split<true>(keys, weights, size, low, high, group_bits)
                            : Split<false>(keys, weights, size, low, high, group_bits);
}

double Cut(const float* keys, size_t size, float key, size_t last, float* weights,
           double* group_sums) {
  const float beyond = std::nextafter(key, kFloatMax);
  double total = 0;
  for (size_t begin = 0; begin < size; begin += kGroup) {
    const size_t end = begin + kGroup < size ? begin + kGroup : size;
    Sum sum;
    size_t i = begin;
    if (end - begin == kGroup && (last >= end - 1 || last < begin)) {
      const float bound = last < begin ? beyond : key;
      for (; i < end; i += kLanes) {
        const Floats kept = Where(Load(keys + i) >= bound, Load(weights + i));
        Store(kept, weights + i);
        sum.Add(kept);
      }
    }
    for (; i < end; ++i) {
      if (!(keys[i] >= (i <= last ? key : beyond))) weights[i] = 0;
      sum.low[0] += weights[i];
    }
    group_sums[begin / kGroup] = sum.Total();
    total += sum.Total();
  }
  return total;
}

}  // namespace

const RowPasses& Passes(const char* isa) {
  static const RowPasses passes = {isa, Scan, WeighRow, Surprise, Typicality, SplitRow, Cut};
  return passes;
}

}  // namespace baton::sampling::BATON_ROW_PASSES
