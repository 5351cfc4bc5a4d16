// SPDX-License-Identifier: Apache-2.0
// Attention in float32 over int8 slices (layouts: Int8Slices), whose codes are
// widened on the way into the registers. Scales of tokens multiply scores and
// weights, not the codes.
#include "kernels/cpu/avx512/attention_rows.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr uint32_t kBlockVectors = kBlockTokens / kLanes;
constexpr uint32_t kValueVectors = 4;  // 64 dimensions of V at a time
constexpr uint32_t kValueRows = 6;
constexpr uint32_t kFetchRows = 4;  // so few wait for memory

BATON_INLINE __m512 Widen(const std::byte* codes) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes))));
}

// Scales of tokens [16 i, 16 i + 16) of a slice.
BATON_INLINE __m512 Scales(const std::byte* slice, uint32_t head_dim, uint32_t i) {
  const std::byte* scales = Int8Scales(slice, head_dim) + size_t{i} * kLanes * 2;
  const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Scores of R rows against B blocks, side by side so that few rows do not wait
// for their sums; each sum over dimensions in order. With few rows brings in the
// slices of K that come `next`, and those of V that belong to these.
template <uint32_t R, uint32_t B>
__attribute__((noinline)) void ScoreBlocks(const float* queries, const std::byte* const* keys,
                                           const std::byte* const* next,
                                           const std::byte* const* values, uint32_t head_dim,
                                           float* scores) {
  __m512 sum[R][B * kBlockVectors];
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < B * kBlockVectors; ++i) sum[r][i] = _mm512_setzero_ps();
  }
#pragma GCC unroll 1
  for (uint32_t d = 0; d < head_dim; ++d) {
    if (R <= kFetchRows && d % 2 == 0) {
#pragma GCC unroll 2
      for (uint32_t i = 0; i < B; ++i) {
        _mm_prefetch(next[i] + d * kBlockTokens, _MM_HINT_T0);
        _mm_prefetch(values[i] + d * kBlockTokens, _MM_HINT_T1);
      }
    }
    __m512 k[B * kBlockVectors];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < B * kBlockVectors; ++i) {
      k[i] = Widen(keys[i / kBlockVectors] + d * kBlockTokens + i % kBlockVectors * kLanes);
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < R; ++r) {
      const __m512 q = _mm512_set1_ps(queries[size_t{r} * head_dim + d]);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < B * kBlockVectors; ++i) {
        sum[r][i] = _mm512_fmadd_ps(q, k[i], sum[r][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (uint32_t i = 0; i < B * kBlockVectors; ++i) {
    const __m512 scale = Scales(keys[i / kBlockVectors], head_dim, i % kBlockVectors);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < R; ++r) {
      _mm512_store_ps(scores + r * kSegmentTokens + i * kLanes, _mm512_mul_ps(sum[r][i], scale));
    }
  }
}

// out[r, 0 .. 16 J) = sum over tokens of weight * V, in order.
template <uint32_t R, uint32_t J>
__attribute__((noinline)) void WeighValues(const SegmentTask& task, const float* weights,
                                           uint32_t dim, float* out) {
  __m512 sum[R][J];
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < J; ++j) sum[r][j] = _mm512_setzero_ps();
  }
  for (uint32_t b = 0; b < task.blocks; ++b) {
    const std::byte* v = task.values[b] + dim;
#pragma GCC unroll 1
    for (uint32_t t = 0; t < kBlockTokens; ++t, ++weights, v += task.head_dim) {
      __m512 value[J];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < J; ++j) value[j] = Widen(v + j * kLanes);
#pragma GCC unroll 12
      for (uint32_t r = 0; r < R; ++r) {
        const __m512 weight = _mm512_set1_ps(weights[r * kSegmentTokens]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < J; ++j) sum[r][j] = _mm512_fmadd_ps(weight, value[j], sum[r][j]);
      }
    }
  }
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < J; ++j) {
      _mm512_store_ps(out + size_t{r} * task.head_dim + j * kLanes, sum[r][j]);
    }
  }
}

template <uint32_t R>
void Values(const SegmentTask& task, uint32_t first_row, const float* weights) {
  weights += first_row * kSegmentTokens;
  float* out = task.out + size_t{first_row} * task.head_dim;
  uint32_t dim = 0;
  for (; dim + kValueVectors * kLanes <= task.head_dim; dim += kValueVectors * kLanes) {
    WeighValues<R, kValueVectors>(task, weights, dim, out + dim);
  }
  for (; dim < task.head_dim; dim += kLanes) WeighValues<R, 1>(task, weights, dim, out + dim);
}

template <uint32_t R>
void ScaleWeights(const SegmentTask& task, float* weights) {
  for (uint32_t b = 0; b < task.blocks; ++b) {
    for (uint32_t i = 0; i < kBlockVectors; ++i) {
      const __m512 scale = Scales(task.values[b], task.head_dim, i);
      float* w = weights + b * kBlockTokens + i * kLanes;
      for (uint32_t r = 0; r < R; ++r, w += kSegmentTokens) {
        _mm512_store_ps(w, _mm512_mul_ps(_mm512_load_ps(w), scale));
      }
    }
  }
}

template <uint32_t R>
void AttendRows(const SegmentTask& task) {
  constexpr uint32_t kTogether = R <= 5 ? 2 : 1;
  alignas(64) float scores[R * kSegmentTokens];
  uint32_t b = 0;
  for (; b + kTogether <= task.blocks; b += kTogether) {
    const uint32_t next = b + 2 * kTogether <= task.blocks ? b + kTogether : b;
    ScoreBlocks<R, kTogether>(task.queries, task.keys + b, task.keys + next, task.values + b,
                              task.head_dim, scores + b * kBlockTokens);
  }
  for (; b < task.blocks; ++b) {
    ScoreBlocks<R, 1>(task.queries, task.keys + b, task.keys + b, task.values + b, task.head_dim,
                      scores + b * kBlockTokens);
  }
  for (uint32_t r = 0; r < R; ++r) {
    WeighInFloat<Exp2>(scores + r * kSegmentTokens, SeenTokens(task, r), task.blocks * kBlockTokens,
                       task.max + r, task.sum + r);
  }
  ScaleWeights<R>(task, scores);
  if constexpr (R <= kValueRows) {
    Values<R>(task, 0, scores);
  } else {
    Values<(R + 1) / 2>(task, 0, scores);
    Values<R / 2>(task, (R + 1) / 2, scores);
  }
}

template <uint32_t R>
struct Rows {
  static void Attend(const SegmentTask& task) { AttendRows<R>(task); }
};

class Int8AttentionFormat final : public Int8Slices {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/attention-int8/1"; }
  void Attend(const SegmentTask& task) const override { AttendByRows<Rows>(task); }
};

}  // namespace

const AttentionFormat& Int8Attention() {
  static const Int8AttentionFormat format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
