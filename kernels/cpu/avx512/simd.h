// SPDX-License-Identifier: Apache-2.0
// Small vector helpers of the AVX-512 kernels. Include only from files that
// are compiled with the AVX-512 flags of this folder.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/variant.h"

#define BATON_INLINE static inline __attribute__((always_inline))

namespace baton::kernels::BATON_AVX512 {

inline constexpr uint32_t kLanes = 16;

// acc[i] += the sum of 4 products u8 * s8. Inline assembly because GCC 12
// copies and spills the accumulators of a large tile around the intrinsic.
BATON_INLINE __m512i DotU8S8(__m512i acc, __m512i u8, __m512i s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u8), "v"(s8));
  return acc;
}

#ifdef BATON_AVX512_VNNI
// The bf16 of every lane's half as a float.
BATON_INLINE __m512 HighBf16(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(~0xffff)));
}
BATON_INLINE __m512 LowBf16(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
#endif

// acc[i] += the sum of 2 products bf16 * bf16, rounded after each.
BATON_INLINE __m512 DotBf16(__m512 acc, __m512i a, __m512i b) {
#ifdef BATON_AVX512_VNNI
  acc = _mm512_fmadd_ps(HighBf16(a), HighBf16(b), acc);
  return _mm512_fmadd_ps(LowBf16(a), LowBf16(b), acc);
#else
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
#endif
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

#ifdef BATON_AVX512_VNNI
// A float rounded to nearest even as bf16, in the low half of each lane; NaN
// stays NaN.
BATON_INLINE __m512i RoundedBf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7fc0));
}
#endif

// 32 floats rounded to nearest even as bf16; lane order low, high.
BATON_INLINE __m512i ToBf16(__m512 low, __m512 high) {
#ifdef BATON_AVX512_VNNI
  const __m256i low_half = _mm512_cvtepi32_epi16(RoundedBf16(low));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low_half),
                            _mm512_cvtepi32_epi16(RoundedBf16(high)), 1);
#else
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
#endif
}

// 8 floats rounded in the same way.
BATON_INLINE __m128i ToBf16(__m256 x) {
  const __m512i all = ToBf16(_mm512_castps256_ps512(x), _mm512_setzero_ps());
  return _mm512_castsi512_si128(all);
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

}  // namespace baton::kernels::BATON_AVX512
