// SPDX-License-Identifier: Apache-2.0
// Vectors that the row passes are written in, as wide as the machine's
// registers. Included by row_finder.h alone, once per instruction set.
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

#if defined(__AVX512F__)
constexpr size_t kLanes = 16;
#elif defined(__AVX2__)
constexpr size_t kLanes = 8;
#else
constexpr size_t kLanes = 4;
#endif
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
constexpr size_t kDoubles = kLanes == 16 ? 8 : 4;
using Doubles = double __attribute__((vector_size(kDoubles * sizeof(double))));

inline Floats Load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}
inline void Store(Floats values, float* to) { std::memcpy(to, &values, sizeof(values)); }
inline Ints AsInts(Floats values) { return (Ints)values; }      // NOLINT: reinterprets
inline Floats AsFloats(Ints values) { return (Floats)values; }  // NOLINT: reinterprets

// Maximum and minimum of two that are no NaN; the second one of two zeros.
inline Floats Max(Floats a, Floats b) {
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
inline Floats Min(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Floats)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
  return (Floats)_mm_min_ps((__m128)a, (__m128)b);
#else
  return a < b ? a : b;
#endif
}

inline Ints MaxInts(Ints a, Ints b) {
#if defined(__AVX512F__)
  return (Ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
  return a > b ? a : b;
#endif
}

// Which lanes a condition holds for.
#if defined(__AVX512F__)
using Mask = __mmask16;
inline Mask AtLeast(Floats a, Floats b) {
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
}
inline Mask Above(Floats a, Floats b) {
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}
// The same within a mask.
inline Mask AtLeast(Mask within, Floats a, Floats b) {
  return _mm512_mask_cmp_ps_mask(within, (__m512)a, (__m512)b, _CMP_GE_OQ);
}
inline Mask Above(Mask within, Floats a, Floats b) {
  return _mm512_mask_cmp_ps_mask(within, (__m512)a, (__m512)b, _CMP_GT_OQ);
}
// a without b.
inline Mask Without(Mask a, Mask b) { return _kandn_mask16(b, a); }
inline uint64_t Bits(Mask mask) { return mask; }
inline Mask MaskOf(uint64_t bits) { return static_cast<Mask>(bits); }
inline Floats Where(Mask mask, Floats values) {
  return (Floats)_mm512_maskz_mov_ps(mask, (__m512)values);
}
#else
using Mask = Ints;
inline Mask AtLeast(Floats a, Floats b) { return a >= b; }
inline Mask Above(Floats a, Floats b) { return a > b; }
inline Mask AtLeast(Mask within, Floats a, Floats b) { return within & (a >= b); }
inline Mask Above(Mask within, Floats a, Floats b) { return within & (a > b); }
inline Mask Without(Mask a, Mask b) { return a & ~b; }
inline uint64_t Bits(Mask mask) {
#if defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)mask));
#else
  uint64_t bits = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) bits |= uint64_t{mask[lane] != 0} << lane;
  return bits;
#endif
}
inline Mask MaskOf(uint64_t bits) {  // the lowest kLanes of them
#if defined(__AVX2__)
  constexpr Ints kBits = {1, 2, 4, 8, 16, 32, 64, 128};
#else
  constexpr Ints kBits = {1, 2, 4, 8};
#endif
  return ((static_cast<int32_t>(bits) + Ints{}) & kBits) != 0;
}
inline Floats Where(Mask mask, Floats values) { return AsFloats(AsInts(values) & mask); }
#endif

// Stores those that the mask has next to each other, and returns how many these
// are. May write a whole vector. Pays for groups with more than kDense of them.
#if defined(__AVX512F__)
constexpr size_t kDense = 16;
inline size_t StorePacked(Mask mask, Floats values, float* to) {
  Store((Floats)_mm512_maskz_compress_ps(mask, (__m512)values), to);
  return static_cast<size_t>(std::popcount(Bits(mask)));
}
#else
constexpr size_t kDense = kGroup - 1;  // all of them
inline size_t StorePacked(Mask, Floats values, float* to) {
  Store(values, to);
  return kLanes;
}
#endif

// A float from 0 to 1 on the grid of 2^-35, as a multiple of 2^-17 and a rest of
// at most 2^-18: 64 of each add up exactly in a float.
struct Parts {
  Floats high, low;
};
constexpr float kToHigh = 0x1.8p+6f;   // adding and taking away rounds to 2^-17
constexpr float kToGrid = 0x1.8p-12f;  // and to 2^-35

// Of a value that is on the grid.
inline Parts PartsOf(Floats values) {
  const Floats high = (values + kToHigh) - kToHigh;
  return {high, values - high};
}
// Of any value from 0 to 1, rounded to the grid, to even: high is an even
// multiple, so that rounding the rest is rounding the whole.
inline Parts RoundToGrid(Floats values) {
  const Floats high = (values + kToHigh) - kToHigh;
  return {high, ((values - high) + kToGrid) - kToGrid};
}

// Exact sums of floats on the grid, in any order.
class Sum final {
 public:
  void Add(const Parts& parts) {
    high_ += parts.high;
    low_ += parts.low;
  }
  void Add(Mask mask, const Parts& parts) {
#if defined(__AVX512F__)
    high_ = (Floats)_mm512_mask_add_ps((__m512)high_, mask, (__m512)high_, (__m512)parts.high);
    low_ = (Floats)_mm512_mask_add_ps((__m512)low_, mask, (__m512)low_, (__m512)parts.low);
#else
    high_ += Where(mask, parts.high);
    low_ += Where(mask, parts.low);
#endif
  }
  // At the latest after 64 additions.
  void Flush() {
    AddToTotal(high_);
    AddToTotal(low_);
    high_ = low_ = Floats{};
  }
  // REQUIRES: flushed.
  double Total() const {
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd((__m512d)total_);
#else
    return (total_[0] + total_[1]) + (total_[2] + total_[3]);
#endif
  }
  double Take() {
    Flush();
    const double total = Total();
    total_ = Doubles{};
    return total;
  }

 private:
  void AddToTotal(const Floats& values) {
#if defined(__AVX512F__)
    const auto all = (__m512)values;
    total_ += (Doubles)_mm512_cvtps_pd(_mm512_castps512_ps256(all));
    total_ += (Doubles)_mm512_cvtps_pd(_mm512_extractf32x8_ps(all, 1));
#elif defined(__AVX2__)
    const auto all = (__m256)values;
    total_ += (Doubles)_mm256_cvtps_pd(_mm256_castps256_ps128(all));
    total_ += (Doubles)_mm256_cvtps_pd(_mm256_extractf128_ps(all, 1));
#else
    total_ += __builtin_convertvector(values, Doubles);
#endif
  }

  Floats high_ = {}, low_ = {};
  Doubles total_ = {};
};

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

// What each element of a group must reach to be in a prefix. Behind the end of
// the row nothing is.
class Bounds final {
 public:
  Bounds(const Prefix& prefix, size_t size)
      : last_group_(prefix.last / kGroup), end_(size / kGroup) {
    const float beyond =
        prefix.key == -kInfinity ? -kFloatMax : std::nextafter(prefix.key, kInfinity);
    for (size_t i = 0; i < kGroup; ++i) {
      before_[i] = prefix.key;
      behind_[i] = beyond;
      border_[i] = i <= prefix.last % kGroup ? prefix.key : beyond;
    }
    const float* from = Whole(end_);
    for (size_t i = 0; i < kGroup; ++i) end_bounds_[i] = i < size % kGroup ? from[i] : kInfinity;
  }

  const float* Of(size_t group) const { return group == end_ ? end_bounds_ : Whole(group); }
  // Whether a group with this maximum may have something.
  bool Reached(size_t group, float most) const {
    return !(most < (group <= last_group_ ? before_[0] : behind_[0]));
  }

 private:
  const float* Whole(size_t group) const {
    return group < last_group_ ? before_ : group == last_group_ ? border_ : behind_;
  }

  const size_t last_group_, end_;
  alignas(64) float before_[kGroup];
  alignas(64) float border_[kGroup];
  alignas(64) float behind_[kGroup];
  alignas(64) float end_bounds_[kGroup];
};

}  // namespace
}  // namespace baton::sampling::BATON_ROW_PASSES
