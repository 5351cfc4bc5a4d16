// SPDX-License-Identifier: Apache-2.0
// The multiply-add tile that float products, scores and sums of values have in
// common, over matrices of float32 or bf16. Include only from files that are
// compiled with the AVX2 flags of this folder.
#pragma once

#include "kernels/cpu/avx2/simd.h"

namespace baton::kernels::avx2 {

alignas(32) inline constexpr uint32_t kHighHalves[kLanes] = {
    0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};

// Inline assembly because a tile of 6 rows has no register left for a mask,
// and GCC 12 keeps one anyway and spills sums.
BATON_INLINE __m256i AndMemory(__m256i x, const uint32_t (&mask)[kLanes]) {
  __m256i result;
  asm("vpand %2, %1, %0" : "=x"(result) : "x"(x), "m"(mask));
  return result;
}

// Rows of a matrix in pairs, in the layouts of panels and of KV slices.
struct F32Pairs {  // [rows][width]
  static constexpr size_t Bytes(uint32_t width) { return size_t{width} * 8; }
  // Elements [column, column + 8) of the even or odd row of a pair.
  template <bool kOdd>
  __attribute__((always_inline)) static inline __m256 Load(const std::byte* pair, uint32_t width,
                                                           uint32_t column) {
    return _mm256_load_ps(reinterpret_cast<const float*>(pair) + (kOdd ? width : 0) + column);
  }
};
struct Bf16Pairs {  // [rows / 2][width][2]
  static constexpr size_t Bytes(uint32_t width) { return size_t{width} * 4; }
  template <bool kOdd>
  __attribute__((always_inline)) static inline __m256 Load(const std::byte* pair,
                                                           uint32_t /*width*/, uint32_t column) {
    const __m256i both = LoadBytes(pair + column * 4);
    return _mm256_castsi256_ps(kOdd ? AndMemory(both, kHighHalves) : _mm256_slli_epi32(both, 16));
  }
};

// sum[r][v] += x[r * row_stride + i * step] * row i of the pair, for i = 0, 1.
template <typename Pairs, int R, int V>
BATON_INLINE void AddPair(const std::byte* pair, uint32_t width, uint32_t column, const float* x,
                          size_t row_stride, size_t step, __m256 (&sum)[R][V]) {
  const auto add = [&](const float* values, const __m256(&w)[V]) __attribute__((always_inline)) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 value = _mm256_broadcast_ss(values + r * row_stride);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = _mm256_fmadd_ps(value, w[v], sum[r][v]);
    }
  };
  __m256 w[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) w[v] = Pairs::template Load<false>(pair, width, column + v * kLanes);
  add(x, w);
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) w[v] = Pairs::template Load<true>(pair, width, column + v * kLanes);
  add(x + step, w);
}

template <int R, int V>
BATON_INLINE void Clear(__m256 (&sum)[R][V]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = _mm256_setzero_ps();
  }
}

template <int R, int V>
BATON_INLINE void Store(const __m256 (&sum)[R][V], float* out, size_t row_stride) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm256_store_ps(out + r * row_stride + v * kLanes, sum[r][v]);
  }
}

// Vectors of a tile of R rows: as many sums as 16 registers hold, and enough
// to hide the latency of multiply-adds.
template <int R>
inline constexpr int kTileVectors = R <= 2 ? 4 : 2;

}  // namespace baton::kernels::avx2
