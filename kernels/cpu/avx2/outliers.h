// SPDX-License-Identifier: Apache-2.0
// Activations that were kept out of the integers (see packing/s8_tiles.h):
// their products are added to a finished tile, one weight column each.
#pragma once

#include <array>

#include "kernels/cpu/avx2/simd.h"
#include "kernels/packing/s8_tiles.h"

namespace baton::kernels::avx2 {

// Row m: the places of the set bits of m, lowest first.
inline constexpr auto kSetBits = [] {
  std::array<std::array<uint8_t, 8>, 256> places{};
  for (uint32_t m = 0; m < 256; ++m) {
    uint32_t count = 0;
    for (uint32_t bit = 0; bit < 8; ++bit) {
      if ((m >> bit & 1) != 0) places[m][count++] = static_cast<uint8_t>(bit);
    }
  }
  return places;
}();

// See ForEachOutlier.
BATON_INLINE uint32_t ListNonzero(const uint32_t* words, uint32_t begin, uint32_t end,
                                  uint32_t* list) {
  uint32_t count = 0;
  for (uint32_t i = begin; i < end; i += kLanes) {
    const __m256i word =
        _mm256_maskload_epi32(reinterpret_cast<const int*>(words + i), TailMask(end - i));
    const __m256i zero = _mm256_cmpeq_epi32(word, _mm256_setzero_si256());
    const auto nonzero =
        static_cast<uint32_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(zero))) & 255;
    // Without branches: which words are nonzero is hard to predict.
    const __m256i places = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSetBits[nonzero].data())));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(list + count),
                        _mm256_add_epi32(places, _mm256_set1_epi32(static_cast<int>(i))));
    count += static_cast<uint32_t>(__builtin_popcount(nonzero));
  }
  return count;
}

// out[r] += x * column for every outlier x of row r, in the order of inputs.
// `words` are the tile's outliers [groups][R]; weights(group, k, column) gives
// weight k of the group for outputs [column, column + 8).
template <uint32_t R, typename Weights>
BATON_INLINE void AddOutliers(const uint32_t* words, uint32_t groups, const Weights& weights,
                              float* out) {
  ForEachOutlier<R>(
      words, groups, ListNonzero, [&](uint32_t group, uint32_t k, float value, uint32_t r) {
        const __m256 x = _mm256_set1_ps(value);
        for (uint32_t c = 0; c < kPanelOutputs; c += kLanes) {
          float* at = out + r * kPanelOutputs + c;
          _mm256_store_ps(at, _mm256_fmadd_ps(weights(group, k, c), x, _mm256_load_ps(at)));
        }
      });
}

}  // namespace baton::kernels::avx2
