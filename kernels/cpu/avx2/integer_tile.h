// SPDX-License-Identifier: Apache-2.0
// The tile of integer products of all weight formats: groups of 32 inputs in
// integers, their sums in float32. Include only from files that are compiled
// with the AVX2 flags of this folder.
#pragma once

#include "kernels/cpu/avx2/outliers.h"
#include "kernels/cpu/avx2/s8_activations.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/packing/w4_panels.h"

namespace baton::kernels::avx2 {

// dot[r][c], as pairs of s16, += the products of a group's nibbles of outputs
// [8 c, 8 c + 8) with row r. A pair sums 16 products: at most 15 * 127 * 16 =
// 30,480, and the additions wrap, so that any start that leaves the end in
// range is fine.
template <int R, int C>
BATON_INLINE void DotNibbles(const std::byte* nibbles, const uint32_t* quads,
                             __m256i (&dot)[R][C]) {
  const __m256i low_half = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b, nibbles += kNibbleRow) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256i w[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const __m256i both = LoadBytes(nibbles + c * 32);
        w[c] = _mm256_and_si256(half == 0 ? both : _mm256_srli_epi16(both, 4), low_half);
      }
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256i x = Broadcast(quads + (2 * b + half) * R + r);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) dot[r][c] = DotU8S8(dot[r][c], w[c], x);
      }
    }
  }
}

// The s32 sums of pairs of s16 times `factor`.
BATON_INLINE __m256i SumPairs(__m256i pairs, int16_t factor = 1) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor));
}

template <int R, int C>
BATON_INLINE void Fill(const uint32_t* row_words, __m256i (&dot)[R][C]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) dot[r][c] = Broadcast(row_words + r);
  }
}

// sum[r, c] of one group += d * scale * dot [+ minimum * sum of activations].
// `out` [R][32] and `record` start at the first of 8 C outputs.
template <int R, int C, bool kAffine>
BATON_INLINE void AddGroup(const std::byte* record, const uint32_t* a, const __m256i (&dot)[R][C],
                           float* out) {
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    const __m256 d = LoadHalf(record + c * 16);
    __m256 m{};
    if constexpr (kAffine) {
      // m + 8 d by additions, which do not compete with the dot products for
      // their execution ports (Zen 4).
      const __m256 d2 = _mm256_add_ps(d, d), d4 = _mm256_add_ps(d2, d2);
      m = _mm256_add_ps(LoadHalf(record + kPanelHalves + c * 16), _mm256_add_ps(d4, d4));
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 scale = BroadcastFloat(a + S8Tile::kScale * R + r);
      float* at = out + r * kPanelOutputs + c * kLanes;
      __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][c]), _mm256_mul_ps(d, scale),
                                   _mm256_load_ps(at));
      if constexpr (kAffine) {
        sum = _mm256_fmadd_ps(m, BroadcastFloat(a + S8Tile::kSum * R + r), sum);
      }
      _mm256_store_ps(at, sum);
    }
  }
}

// out = panel * tile for R rows. Weights gives kRecordBytes, kAffine,
// Dot<R, C>(record, column, a, dot) with the exact sums of a group for outputs
// [column, column + 8 C), and Column(record, k, column) for AddOutliers. Four
// vectors of outputs at once where 16 registers allow it, else two.
template <typename Weights, int R>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t groups,
                                            const uint32_t* tile, float* out, Prefetcher prefetch) {
  constexpr int C = R <= 2 ? 4 : 2;
  // Not memset: GCC makes it a string instruction, slow to start.
#pragma GCC unroll 4
  for (uint32_t i = 0; i < R * kPanelOutputs; i += kLanes) {
    _mm256_store_ps(out + i, _mm256_setzero_ps());
  }
  const std::byte* record = panel;
  const uint32_t* a = tile;
#pragma GCC unroll 1
  for (uint32_t g = 0; g < groups; ++g, record += Weights::kRecordBytes, a += S8Tile::kWords * R) {
    prefetch.Step();
#pragma GCC unroll 1
    for (uint32_t column = 0; column < kPanelOutputs; column += C * kLanes) {
      ForgetMemory();
      __m256i dot[R][C];
      Weights::template Dot<R, C>(record, column, a, dot);
      AddGroup<R, C, Weights::kAffine>(record + column * 2, a, dot, out + column);
    }
  }
  AddOutliers<R>(
      tile + S8Tile::Outliers(groups, R), groups,
      [panel](uint32_t group, uint32_t k, uint32_t column) __attribute__((always_inline)) {
        return Weights::Column(panel + group * Weights::kRecordBytes, k, column);
      },
      out);
}

template <typename Weights>
BATON_INLINE void MultiplyRows(const std::byte* panel, uint32_t inputs, const std::byte* tile,
                               uint32_t tile_rows, float* out, const std::byte* next,
                               size_t next_bytes) {
  using Kernel = void(const std::byte*, uint32_t, const uint32_t*, float*, Prefetcher);
  static constexpr Kernel* kKernels[kTileRows] = {
      MultiplyTile<Weights, 1>, MultiplyTile<Weights, 2>, MultiplyTile<Weights, 3>,
      MultiplyTile<Weights, 4>, MultiplyTile<Weights, 5>, MultiplyTile<Weights, 6>};
  const uint32_t groups = GroupCount(inputs);
  kKernels[tile_rows - 1](panel, groups, reinterpret_cast<const uint32_t*>(tile), out,
                          Prefetcher(next, next_bytes, groups));
}

// Nibble k of a group of outputs [column, column + 8), as s32.
BATON_INLINE __m256i NibbleColumn(const std::byte* nibbles, uint32_t k, uint32_t column) {
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(k % 4 * 8 + k / 4 % 2 * 4));
  const __m256i words = LoadBytes(nibbles + k / 8 * kNibbleRow + column * 4);
  return _mm256_and_si256(_mm256_srl_epi32(words, shift), _mm256_set1_epi32(15));
}

}  // namespace baton::kernels::avx2
