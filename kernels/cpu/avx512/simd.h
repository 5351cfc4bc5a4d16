// SPDX-License-Identifier: Apache-2.0
// Small vector helpers of the AVX-512 kernels. Include only from files that
// are compiled with the AVX-512 flags of this folder.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define BATON_INLINE static inline __attribute__((always_inline))

namespace baton::kernels::avx512 {

inline constexpr uint32_t kLanes = 16;

// acc[i] += the sum of 4 products u8 * s8. Inline assembly because GCC 12
// copies and spills the accumulators of a large tile around the intrinsic.
BATON_INLINE __m512i DotU8S8(__m512i acc, __m512i u8, __m512i s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u8), "v"(s8));
  return acc;
}

// acc[i] += the sum of 2 products bf16 * bf16, rounded after each.
BATON_INLINE __m512 DotBf16(__m512 acc, __m512i a, __m512i b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}

// A 4-byte quad (u8, s8) or pair (bf16) in every lane.
BATON_INLINE __m512i Broadcast(const uint32_t* value) {
  return _mm512_set1_epi32(static_cast<int>(*value));
}
BATON_INLINE __m512 BroadcastFloat(const uint32_t* value) {
  return _mm512_castsi512_ps(Broadcast(value));
}

BATON_INLINE __m512 LoadHalf(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}

// 32 floats rounded to nearest even as bf16; lane order low, high.
BATON_INLINE __m512i ToBf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Lanes [0, remaining) of a vector that starts `remaining` before the end.
BATON_INLINE __mmask16 TailMask(size_t remaining) {
  return remaining >= kLanes ? static_cast<__mmask16>(0xffff)
                             : static_cast<__mmask16>((1u << remaining) - 1);
}

// 2^f for f in [-1/2, 1/2]: minimax polynomial, relative error 2e-9 before
// rounding.
BATON_INLINE __m512 Exp2Fraction(__m512 f) {
  __m512 p = _mm512_set1_ps(1.53549098e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.33988624e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.61843336e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55033255e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40226479e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147203e-1f));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
}

BATON_INLINE __m512 RoundToInteger(__m512 x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// 2^x to float accuracy; 0 and infinity beyond the range.
BATON_INLINE __m512 Exp2(__m512 x) {
  const __m512 whole = RoundToInteger(x);
  return _mm512_scalef_ps(Exp2Fraction(_mm512_sub_ps(x, whole)), whole);
}

// e^x to float accuracy; 0 and infinity beyond the range. log2(e) is split in
// two so that large arguments keep their fraction (Cody and Waite, 1980).
BATON_INLINE __m512 Exp(__m512 x) {
  const __m512 high = _mm512_set1_ps(1.44269502f), low = _mm512_set1_ps(1.92596299e-8f);
  // Beyond +-200 the result is 0 or infinity anyway, and x * log2(e) stays finite.
  x = _mm512_min_ps(_mm512_set1_ps(200.0f), _mm512_max_ps(_mm512_set1_ps(-200.0f), x));
  const __m512 whole = RoundToInteger(_mm512_mul_ps(x, high));
  const __m512 fraction = _mm512_fmadd_ps(x, low, _mm512_fmsub_ps(x, high, whole));
  return _mm512_scalef_ps(Exp2Fraction(fraction), whole);
}

// 2^x for x <= 0 as the weights of attention need it: relative error 9e-5
// (rounding to bf16 costs up to 4e-3), exactly 1 at x = 0, 0 far below.
BATON_INLINE __m512 Exp2Coarse(__m512 x) {
  // imm8 = 1: x - floor(x).
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
  __m512 p = _mm512_set1_ps(7.70670436e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.27644989e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.95116787e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);  // scalef takes floor(x)
}

// Spreads the prefetch of `next` over the groups of one Multiply.
class Prefetcher {
 public:
  Prefetcher(const std::byte* next, size_t bytes, uint32_t groups)
      : next_(reinterpret_cast<const char*>(next)),
        lines_(next == nullptr || groups == 0
                   ? 0
                   : static_cast<uint32_t>((bytes / 64 + groups - 1) / groups)) {}
  __attribute__((always_inline)) void Step() {
    for (uint32_t i = 0; i < lines_; ++i, next_ += 64) _mm_prefetch(next_, _MM_HINT_T0);
  }

 private:
  const char* next_;
  uint32_t lines_;
};

}  // namespace baton::kernels::avx512
