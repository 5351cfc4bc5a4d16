// SPDX-License-Identifier: Apache-2.0
// Activations that were kept out of the integers (see s8_activations.h): their
// products are added to a finished tile, one weight column each.
#pragma once

#include <algorithm>

#include "kernels/api/linear.h"
#include "kernels/cpu/avx512/s8_activations.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {

// Puts the indices of the nonzero words among [begin, end) into `list`, which
// has room for 16 more than there can be; returns how many.
BATON_INLINE uint32_t ListNonzero(const uint32_t* words, uint32_t begin, uint32_t end,
                                  uint32_t* list) {
  __m512i index =
      _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(begin)),
                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  uint32_t count = 0;
  for (uint32_t i = begin; i < end; i += kLanes) {
    const __m512i word = _mm512_maskz_loadu_epi32(TailMask(end - i), words + i);
    const __mmask16 nonzero = _mm512_test_epi32_mask(word, word);
    // Without branches: which words are nonzero is hard to predict.
    _mm512_storeu_si512(list + count, _mm512_maskz_compress_epi32(nonzero, index));
    count += static_cast<uint32_t>(__builtin_popcount(nonzero));
    index = _mm512_add_epi32(index, _mm512_set1_epi32(kLanes));
  }
  return count;
}

// out[r] += x * column for every outlier x of row r, in the order of inputs.
// `words` are the tile's outliers [groups][R]; weights(group, k, w0, w1) gives
// weight k of the group for outputs 0-15 and 16-31, without what S8Tile::kSum
// accounts for.
template <uint32_t R, typename Weights>
BATON_INLINE void AddOutliers(const uint32_t* words, uint32_t groups, const Weights& weights,
                              float* out) {
  constexpr uint32_t kChunk = 256;
  uint32_t list[kChunk + kLanes];
  for (uint32_t begin = 0; begin < groups * R; begin += kChunk) {
    const uint32_t count = ListNonzero(words, begin, std::min(begin + kChunk, groups * R), list);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t word = words[list[i]];
      const __m512 x = _mm512_castsi512_ps(
          _mm512_set1_epi32(static_cast<int>(word & ~S8Tile::kOutlierIndexMask)));
      __m512 w0, w1;
      weights(list[i] / R, word & S8Tile::kOutlierIndexMask, &w0, &w1);
      float* row = out + list[i] % R * kPanelOutputs;
      _mm512_store_ps(row, _mm512_fmadd_ps(w0, x, _mm512_load_ps(row)));
      _mm512_store_ps(row + kLanes, _mm512_fmadd_ps(w1, x, _mm512_load_ps(row + kLanes)));
    }
  }
}

}  // namespace baton::kernels::BATON_AVX512
