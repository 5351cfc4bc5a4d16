// SPDX-License-Identifier: Apache-2.0
// Small vector helpers of the AVX2 kernels. Include only from files that are
// compiled with the AVX2 flags of this folder.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/packing/kernel_support.h"

namespace baton::kernels::avx2 {

inline constexpr uint32_t kLanes = 8;

// acc[i] += the sum of 2 products u8 * s8, in s16. Inline assembly because
// GCC 12 collects many products before it adds them, and spills.
BATON_INLINE __m256i DotU8S8(__m256i acc, __m256i u8, __m256i s8) {
  __m256i products;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc), "=&x"(products) : "x"(u8), "x"(s8));
  return acc;
}

// Makes the compiler load again what it would carry in registers it does not
// have, spilling the sums of a tile.
BATON_INLINE void ForgetMemory() { asm volatile("" ::: "memory"); }

// A 4-byte quad of s8 or pair of s16 in every lane.
BATON_INLINE __m256i Broadcast(const uint32_t* value) {
  return _mm256_set1_epi32(static_cast<int>(*value));
}
BATON_INLINE __m256 BroadcastFloat(const uint32_t* value) {
  return _mm256_castsi256_ps(Broadcast(value));
}

BATON_INLINE __m256i LoadBytes(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
BATON_INLINE __m256 LoadHalf(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}

// All bits in lanes [0, remaining) of a vector that starts `remaining` before
// the end.
BATON_INLINE __m256i TailMask(size_t remaining) {
  const int count = remaining < kLanes ? static_cast<int>(remaining) : static_cast<int>(kLanes);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Lanes [0, remaining) of a vector that starts `remaining` before the end.
// Masked stores take dozens of cycles on Zen: for true tails alone.
BATON_INLINE __m256 LoadLanes(const float* from, size_t remaining) {
  if (remaining >= kLanes) return _mm256_loadu_ps(from);
  return _mm256_maskload_ps(from, TailMask(remaining));
}
BATON_INLINE void StoreLanes(float* to, size_t remaining, __m256 v) {
  if (remaining >= kLanes) {
    _mm256_storeu_ps(to, v);
  } else {
    _mm256_maskstore_ps(to, TailMask(remaining), v);
  }
}

BATON_INLINE __m256 Abs(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

BATON_INLINE float ReduceMax(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
BATON_INLINE float ReduceAdd(__m256 x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// 2^f for f in [-1/2, 1/2]: minimax polynomial, relative error 2e-9 before
// rounding.
BATON_INLINE __m256 Exp2Fraction(__m256 f) {
  __m256 p = _mm256_set1_ps(1.53549098e-4f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.33988624e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.61843336e-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.55033255e-2f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.40226479e-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.93147203e-1f));
  return _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
}

BATON_INLINE __m256 RoundToInteger(__m256 x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// 2^n for whole n in [-127, 128]; 0 and infinity at the ends.
BATON_INLINE __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

// 2^x for x <= 0 to float accuracy; 0 below -126.5. NaN stays NaN.
BATON_INLINE __m256 Exp2(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-127.0f), x);  // the second operand when it is NaN
  const __m256 whole = RoundToInteger(x);
  return _mm256_mul_ps(Exp2Fraction(_mm256_sub_ps(x, whole)),
                       PowerOfTwo(_mm256_cvtps_epi32(whole)));
}

// e^x to float accuracy; infinity beyond the range, denormal below it. log2(e)
// is split in two so that large arguments keep their fraction (Cody and Waite,
// 1980), the power of two so that both factors are in range.
BATON_INLINE __m256 Exp(__m256 x) {
  const __m256 high = _mm256_set1_ps(1.44269502f), low = _mm256_set1_ps(1.92596299e-8f);
  // Beyond +-100 the result is below the normal range or infinite anyway.
  x = _mm256_min_ps(_mm256_set1_ps(100.0f), _mm256_max_ps(_mm256_set1_ps(-100.0f), x));
  const __m256 whole = RoundToInteger(_mm256_mul_ps(x, high));
  const __m256 fraction = _mm256_fmadd_ps(x, low, _mm256_fmsub_ps(x, high, whole));
  const __m256i n = _mm256_cvtps_epi32(whole), half = _mm256_srai_epi32(n, 1);
  return _mm256_mul_ps(_mm256_mul_ps(Exp2Fraction(fraction), PowerOfTwo(half)),
                       PowerOfTwo(_mm256_sub_epi32(n, half)));
}

}  // namespace baton::kernels::avx2
