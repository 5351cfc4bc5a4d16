// SPDX-License-Identifier: Apache-2.0
// The tile of integer products of all weight formats: groups of 32 inputs in
// integers, their sums in float32. Include only from files that are compiled
// with the AVX2 flags of this folder.
#pragma once

#include "kernels/cpu/avx2/outliers.h"
#include "kernels/cpu/avx2/s8_activations.h"
#include "kernels/cpu/avx2/simd.h"
#include "kernels/packing/k_panels.h"

namespace baton::kernels::avx2 {

// The codes, of 4 + kHigh bits, of quad kQuad of a group (k_panels.h) for 8
// outputs; `codes` are the group's, moved by 4 bytes per output before them.
template <int kHigh, int kQuad>
BATON_INLINE __m256i LoadCodes(const std::byte* codes) {
  const __m256i both = LoadBytes(codes + kQuad / 2 * kNibbleRow);
  const __m256i nibbles = kQuad % 2 == 0 ? both : _mm256_srli_epi16(both, 4);
  const __m256i low = _mm256_and_si256(nibbles, _mm256_set1_epi8(15));
  if constexpr (kHigh == 0) return low;
  constexpr int kBit = kQuad * kHigh % 8;  // where the quad's bits begin
  __m256i high = LoadBytes(codes + kPanelNibbles + kQuad * kHigh / 8 * kPlane);
  if constexpr (kBit < 4) high = _mm256_slli_epi16(high, 4 - kBit);
  if constexpr (kBit > 4) high = _mm256_srli_epi16(high, kBit - 4);
  return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(((1 << kHigh) - 1) << 4)));
}

template <int kHigh, int kQuad, int R, int C>
BATON_INLINE void DotQuad(const std::byte* codes, const uint32_t* quads, __m256i (&dot)[R][C]) {
  __m256i w[C];
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) w[c] = LoadCodes<kHigh, kQuad>(codes + c * 32);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m256i x = Broadcast(quads + kQuad * R + r);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) dot[r][c] = DotU8S8(dot[r][c], w[c], x);
  }
}

// dot[r][c], as pairs of s16, += the products of codes of outputs [8 c, 8 c + 8)
// with row r, of quads [4 kPart, 4 kPart + 4). The additions wrap, so that any
// start that leaves the end in range is fine: a whole group's pair sums 16
// products, at most 15 * 127 * 16 = 30,480 from 0, and with five bits taken from
// 16, 16 * 127 * 16 = 32,512; with six bits taken from 32 half a group's as much.
template <int kHigh, int kPart, int R, int C>
BATON_INLINE void DotHalf(const std::byte* codes, const uint32_t* quads, __m256i (&dot)[R][C]) {
  DotQuad<kHigh, 4 * kPart>(codes, quads, dot);
  DotQuad<kHigh, 4 * kPart + 1>(codes, quads, dot);
  DotQuad<kHigh, 4 * kPart + 2>(codes, quads, dot);
  DotQuad<kHigh, 4 * kPart + 3>(codes, quads, dot);
}
template <int kHigh, int R, int C>
BATON_INLINE void DotGroup(const std::byte* codes, const uint32_t* quads, __m256i (&dot)[R][C]) {
  DotHalf<kHigh, 0>(codes, quads, dot);
  DotHalf<kHigh, 1>(codes, quads, dot);
}

// The s32 sums of pairs of s16 times `factor`.
BATON_INLINE __m256i SumPairs(__m256i pairs, int16_t factor = 1) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(factor));
}

template <int R, int C>
BATON_INLINE void SumPairs(__m256i (&dot)[R][C]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) dot[r][c] = SumPairs(dot[r][c]);
  }
}

// Starts all outputs of row r with start(r).
template <int R, int C, typename Start>
BATON_INLINE void Fill(const Start& start, __m256i (&dot)[R][C]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m256i value = start(r);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) dot[r][c] = value;
  }
}

// Where nibbles stand for themselves less 8; five bits less 16.
template <int R, int C>
BATON_INLINE void FillShift4(const uint32_t* a, __m256i (&dot)[R][C]) {
  Fill([a](int r) { return Broadcast(a + S8Tile::kShift4 * R + r); }, dot);
}
template <int R, int C>
BATON_INLINE void FillShift5(const uint32_t* a, __m256i (&dot)[R][C]) {
  Fill(
      [a](int r) {
        const __m256i shift = Broadcast(a + S8Tile::kShift4 * R + r);
        return _mm256_add_epi16(shift, shift);
      },
      dot);
}

// `out` [R][32], from the first of 8 C outputs on, += scale of the weights *
// scale of the row * dot [+ minimum * sum of activations], for part kPart of a
// group.
template <typename Weights, int kPart, int R, int C>
BATON_INLINE void AddPart(const std::byte* record, uint32_t group, uint32_t column,
                          const uint32_t* a, const __m256i (&dot)[R][C], float* out) {
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    const uint32_t first = column + c * kLanes;
    const __m256 d = Weights::template Scale<kPart>(record, group, first);
    __m256 m{};
    if constexpr (Weights::kAffine) m = Weights::Minimum(record, group, first, d);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 scale = BroadcastFloat(a + S8Tile::kScale * R + r);
      float* at = out + r * kPanelOutputs + c * kLanes;
      __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][c]), _mm256_mul_ps(d, scale),
                                   _mm256_load_ps(at));
      if constexpr (Weights::kAffine) {
        sum = _mm256_fmadd_ps(m, BroadcastFloat(a + S8Tile::kSum * R + r), sum);
      }
      _mm256_store_ps(at, sum);
    }
  }
}

template <typename Weights, int kPart, int R, int C>
BATON_INLINE void MultiplyPart(const std::byte* record, uint32_t group, uint32_t column,
                               const uint32_t* a, float* out) {
  ForgetMemory();
  __m256i dot[R][C];
  Weights::template Dot<kPart>(record, group, column, a, dot);
  AddPart<Weights, kPart>(record, group, column, a, dot, out + column);
}

// out = panel * tile for R rows. Weights describes a format:
//   kRecordBytes, kRecordGroups   of a record of the panel
//   kParts                        parts of a group with scales of their own, 1 or 2
//   kAffine                       there are minima
// and for outputs [column, column + 8) of group `group` of a record:
//   Dot<kPart, R, C>(record, group, column, a, dot)   the exact sums of a part, of
//                                                     8 C outputs
//   Scale<kPart>(record, group, column)               what multiplies them
//   Minimum(record, group, column, scale)             what multiplies the sum of
//                                                     activations (affine only)
//   Column(record, group, k, column)                  weight k: see AddOutliers
// Four vectors of outputs at once where 16 registers allow it, else two.
template <typename Weights, int R>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t groups,
                                            const uint32_t* tile, float* out, Prefetcher prefetch) {
  constexpr int C = R <= 2 ? 4 : 2;
  // Not memset: GCC makes it a string instruction, slow to start.
#pragma GCC unroll 4
  for (uint32_t i = 0; i < R * kPanelOutputs; i += kLanes) {
    _mm256_store_ps(out + i, _mm256_setzero_ps());
  }
  const uint32_t* a = tile;
  const std::byte* const end = panel + groups / Weights::kRecordGroups * Weights::kRecordBytes;
#pragma GCC unroll 1
  for (const std::byte* record = panel; record < end; record += Weights::kRecordBytes) {
#pragma GCC unroll 1
    for (uint32_t g = 0; g < Weights::kRecordGroups; ++g, a += S8Tile::kWords * R) {
      prefetch.Step();
#pragma GCC unroll 1
      for (uint32_t column = 0; column < kPanelOutputs; column += C * kLanes) {
        MultiplyPart<Weights, 0, R, C>(record, g, column, a, out);
        if constexpr (Weights::kParts == 2) {
          MultiplyPart<Weights, 1, R, C>(record, g, column, a, out);
        }
      }
    }
  }
  AddOutliers<R>(
      tile + S8Tile::Outliers(groups, R), groups,
      [panel](uint32_t group, uint32_t k, uint32_t column) __attribute__((always_inline)) {
        const std::byte* record = panel + group / Weights::kRecordGroups * Weights::kRecordBytes;
        return Weights::Column(record, group % Weights::kRecordGroups, k, column);
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

// Code k of a group (k_panels.h) of outputs [column, column + 8), as s32.
template <int kHigh>
BATON_INLINE __m256i CodeColumn(const std::byte* codes, uint32_t k, uint32_t column) {
  const uint32_t quad = k / 4, byte = k % 4 * 8;
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(byte + quad % 2 * 4));
  const __m256i words = LoadBytes(codes + quad / 2 * kNibbleRow + column * 4);
  const __m256i low = _mm256_and_si256(_mm256_srl_epi32(words, shift), _mm256_set1_epi32(15));
  if constexpr (kHigh == 0) return low;
  const __m128i high_shift = _mm_cvtsi32_si128(static_cast<int>(byte + quad * kHigh % 8));
  const __m256i plane = LoadBytes(codes + kPanelNibbles + quad * kHigh / 8 * kPlane + column * 4);
  const __m256i high =
      _mm256_and_si256(_mm256_srl_epi32(plane, high_shift), _mm256_set1_epi32((1 << kHigh) - 1));
  return _mm256_or_si256(low, _mm256_slli_epi32(high, 4));
}

}  // namespace baton::kernels::avx2
