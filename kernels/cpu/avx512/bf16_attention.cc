// SPDX-License-Identifier: Apache-2.0
// Attention over bf16 KV blocks (layouts: Bf16Slices).
//
// For up to 12 rows and one 256-token segment: scores = Q K with the
// accumulators of 12 rows x 32 tokens in registers, stored to a 12 KiB array
// in the L1 cache; weights = 2^(score - max), rounded to bf16, and their sum;
// out = weights * V with the accumulators of 6 rows x 64 dimensions in
// registers. The sum is taken over the rounded weights, so that out / sum is a
// weighted mean of V exactly as multiplied.
//
// The three loops are separate functions that must not be inlined: GCC 12
// spills the accumulators of the 24-register tiles otherwise.
#include <algorithm>

#include "kernels/cpu/avx512/attention_rows.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr uint32_t kBlockVectors = kBlockTokens / kLanes;
constexpr uint32_t kTokenPairs = kBlockTokens / 2;
constexpr uint32_t kValueVectors = 4;  // 64 dimensions of V at a time
constexpr uint32_t kValueRows = 6;
// Dimensions of Q and K taken at a time, in pairs; scores of wider heads are
// continued from the array.
constexpr uint32_t kMaxPairs = 64;
// So few rows wait for memory.
constexpr uint32_t kFetchRows = 4;

struct Scratch {
  alignas(64) uint32_t queries[kMaxPairs * kAttentionRows];       // [pairs][rows]
  alignas(64) float scores[kAttentionRows * kSegmentTokens];      // [rows][256]
  alignas(64) uint16_t weights[kAttentionRows * kSegmentTokens];  // [rows][256]
};

// Adds (or with `first` puts) the scores of dimension pairs [0, pairs) of
// `blocks` blocks. With few rows brings the next K slice in, and the V slice that
// belongs to this one.
template <uint32_t R>
__attribute__((noinline)) void AddScores(const SegmentTask& task, size_t offset, uint32_t blocks,
                                         const uint32_t* queries, uint32_t pairs, bool first,
                                         float* scores) {
#pragma GCC unroll 1
  for (uint32_t b = 0; b < blocks; ++b, scores += kBlockTokens) {
    const std::byte* k = task.keys[b] + offset;
    const std::byte* const next = KeysAfter(task, b) + offset;
    const std::byte* const value = task.values[b] + offset;
    const uint32_t* q = queries;
    __m512 sum[R][kBlockVectors];
#pragma GCC unroll 12
    for (uint32_t r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    if (!first) {
#pragma GCC unroll 12
      for (uint32_t r = 0; r < R; ++r) {
        sum[r][0] = _mm512_load_ps(scores + r * kSegmentTokens);
        sum[r][1] = _mm512_load_ps(scores + r * kSegmentTokens + kLanes);
      }
    }
#pragma GCC unroll 1
    for (uint32_t p = 0; p < pairs; ++p, k += kBlockTokens * 4, q += R) {
      const __m512i k0 = _mm512_load_si512(k), k1 = _mm512_load_si512(k + 64);
      if constexpr (R <= kFetchRows) {
        for (size_t line = p * kBlockTokens * 4, i = 0; i < 2; ++i, line += 64) {
          _mm_prefetch(next + line, _MM_HINT_T0);
          _mm_prefetch(value + line, _MM_HINT_T1);
        }
      }
#pragma GCC unroll 12
      for (uint32_t r = 0; r < R; ++r) {
        const __m512i x = Broadcast(q + r);
        sum[r][0] = DotBf16(sum[r][0], k0, x);
        sum[r][1] = DotBf16(sum[r][1], k1, x);
      }
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < R; ++r) {
      _mm512_store_ps(scores + r * kSegmentTokens, sum[r][0]);
      _mm512_store_ps(scores + r * kSegmentTokens + kLanes, sum[r][1]);
    }
  }
}

BATON_INLINE float MaxScore(const float* scores, uint32_t visible) {
  const __m512 none = _mm512_set1_ps(kNoScore);
  __m512 max0 = none, max1 = none;
  uint32_t t = 0;
  for (; t + kBlockTokens <= visible; t += kBlockTokens) {
    max0 = _mm512_max_ps(max0, _mm512_load_ps(scores + t));
    max1 = _mm512_max_ps(max1, _mm512_load_ps(scores + t + kLanes));
  }
  if (t < visible) {
    max0 = _mm512_mask_max_ps(max0, TailMask(visible - t), max0, _mm512_load_ps(scores + t));
    if (t + kLanes < visible) {
      max1 = _mm512_mask_max_ps(max1, TailMask(visible - t - kLanes), max1,
                                _mm512_load_ps(scores + t + kLanes));
    }
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(max0, max1));
}

// Turns one row's scores of `visible` tokens into weights; zeros from there to
// `blocks`.
__attribute__((noinline)) void WeighRow(const float* scores, uint32_t visible, uint32_t blocks,
                                        uint16_t* weights, float* max, float* sum) {
  *max = MaxScore(scores, visible);
  const __m512 row_max = _mm512_set1_ps(*max);
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);  // pairs of bf16 1
  __m512 total = _mm512_setzero_ps();
  uint32_t t = 0;
  for (; t + kBlockTokens <= visible; t += kBlockTokens) {
    const __m512 w0 = Exp2Coarse(_mm512_sub_ps(_mm512_load_ps(scores + t), row_max));
    const __m512 w1 = Exp2Coarse(_mm512_sub_ps(_mm512_load_ps(scores + t + kLanes), row_max));
    const __m512i pairs = ToBf16(w0, w1);
    total = DotBf16(total, pairs, ones);
    _mm512_store_si512(weights + t, pairs);
  }
  if (t < visible) {
    const __m512 w0 = Exp2Coarse(_mm512_sub_ps(_mm512_load_ps(scores + t), row_max));
    const __m512 w1 = Exp2Coarse(_mm512_sub_ps(_mm512_load_ps(scores + t + kLanes), row_max));
    const __mmask32 mask = (1u << (visible - t)) - 1;
    const __m512i pairs = _mm512_maskz_mov_epi16(mask, ToBf16(w0, w1));
    total = DotBf16(total, pairs, ones);
    _mm512_store_si512(weights + t, pairs);
    t += kBlockTokens;
  }
  for (; t < blocks * kBlockTokens; t += kBlockTokens) {
    _mm512_store_si512(weights + t, _mm512_setzero_si512());
  }
  *sum = _mm512_reduce_add_ps(total);
}

// out[r, 0 .. 16 J) = weights[r] * V over `pairs` token pairs.
template <uint32_t R, uint32_t J>
__attribute__((noinline)) void WeighValues(const std::byte* const* values, size_t value_offset,
                                           uint32_t head_dim, uint32_t pairs,
                                           const uint16_t* weights, float* out) {
  __m512 sum[R][J];
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < J; ++j) sum[r][j] = _mm512_setzero_ps();
  }
  const uint32_t* w = reinterpret_cast<const uint32_t*>(weights);
#pragma GCC unroll 1
  for (uint32_t t = 0; t < pairs; ++t, ++w) {
    const std::byte* v =
        values[t / kTokenPairs] + value_offset + size_t{t % kTokenPairs} * head_dim * 4;
    __m512i value[J];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < J; ++j) value[j] = _mm512_load_si512(v + j * 64);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < R; ++r) {
      const __m512i x = Broadcast(w + r * (kSegmentTokens / 2));
#pragma GCC unroll 4
      for (uint32_t j = 0; j < J; ++j) sum[r][j] = DotBf16(sum[r][j], value[j], x);
    }
  }
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < J; ++j)
      _mm512_store_ps(out + r * size_t{head_dim} + j * kLanes, sum[r][j]);
  }
}

// Rows of `task` as bf16 pairs [pairs][rows] from dimension `first_dim` on.
void PackQueries(const SegmentTask& task, uint32_t first_dim, uint32_t pairs, uint32_t* out) {
  for (uint32_t r = 0; r < task.rows; ++r) {
    const float* q = task.queries + size_t{r} * task.head_dim + first_dim;
    for (uint32_t p = 0; p < pairs; p += kLanes / 2) {
      alignas(64) uint32_t packed[kLanes];
      _mm512_store_si512(packed, ToBf16(_mm512_loadu_ps(q + 2 * p), _mm512_setzero_ps()));
      for (uint32_t i = 0; i < kLanes / 2; ++i) out[(p + i) * task.rows + r] = packed[i];
    }
  }
}

template <uint32_t R>
void Scores(const SegmentTask& task, uint32_t blocks, Scratch* scratch) {
  for (uint32_t dim = 0; dim < task.head_dim; dim += 2 * kMaxPairs) {
    const uint32_t pairs = std::min(kMaxPairs, (task.head_dim - dim) / 2);
    PackQueries(task, dim, pairs, scratch->queries);
    AddScores<R>(task, size_t{dim} * kBlockTokens * 2, blocks, scratch->queries, pairs, dim == 0,
                 scratch->scores);
  }
}

template <uint32_t R>
void Values(const SegmentTask& task, uint32_t first_row, uint32_t pairs, const Scratch& scratch) {
  const uint16_t* weights = scratch.weights + first_row * kSegmentTokens;
  float* out = task.out + size_t{first_row} * task.head_dim;
  uint32_t dim = 0;
  for (; dim + kValueVectors * kLanes <= task.head_dim; dim += kValueVectors * kLanes) {
    WeighValues<R, kValueVectors>(task.values, size_t{dim} * 4, task.head_dim, pairs, weights,
                                  out + dim);
  }
  for (; dim < task.head_dim; dim += kLanes) {
    WeighValues<R, 1>(task.values, size_t{dim} * 4, task.head_dim, pairs, weights, out + dim);
  }
}

uint32_t Visible(const SegmentTask& task, uint32_t row) {
  const uint32_t position = task.positions[row];
  if (position < task.first_token) return 0;
  return std::min(position - task.first_token + 1, task.blocks * kBlockTokens);
}

template <uint32_t R>
void AttendRows(const SegmentTask& task) {
  Scratch scratch;
  uint32_t most = 0;
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) most = std::max(most, Visible(task, r));
  const uint32_t blocks = (most + kBlockTokens - 1) / kBlockTokens;
  Scores<R>(task, blocks, &scratch);
#pragma GCC unroll 12
  for (uint32_t r = 0; r < R; ++r) {
    WeighRow(scratch.scores + r * kSegmentTokens, Visible(task, r), blocks,
             scratch.weights + r * kSegmentTokens, task.max + r, task.sum + r);
  }
  const uint32_t pairs = (most + 1) / 2;
  if constexpr (R <= kValueRows) {
    Values<R>(task, 0, pairs, scratch);
  } else {
    Values<(R + 1) / 2>(task, 0, pairs, scratch);
    Values<R / 2>(task, (R + 1) / 2, pairs, scratch);
  }
}

template <uint32_t R>
struct Rows {
  static void Attend(const SegmentTask& task) { AttendRows<R>(task); }
};

class Bf16AttentionFormat final : public Bf16Slices {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/attention-bf16/1"; }
  void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot, std::byte* k_slice,
              std::byte* v_slice) const override;
  void Attend(const SegmentTask& task) const override { AttendByRows<Rows>(task); }
};

// The bits of FloatToBf16 in the low half of every lane (the instruction would
// flush denormals).
__m512i RoundToBf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_srli_epi32(
      _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet), 16);
}

void Bf16AttentionFormat::Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot,
                                 std::byte* k_slice, std::byte* v_slice) const {
  uint32_t* keys = reinterpret_cast<uint32_t*>(k_slice) + slot;
  uint16_t* values =
      reinterpret_cast<uint16_t*>(v_slice) + size_t{slot / 2} * head_dim * 2 + slot % 2;
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    alignas(32) uint16_t row[kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(row),
                       _mm512_cvtepi32_epi16(RoundToBf16(_mm512_loadu_ps(k + d))));
    for (uint32_t i = 0; i < kLanes; i += 2) {
      keys[size_t{d + i} / 2 * kBlockTokens] = row[i] | uint32_t{row[i + 1]} << 16;
    }
    // Stores of 2 bytes each: another thread may write the pair's other token.
    _mm256_store_si256(reinterpret_cast<__m256i*>(row),
                       _mm512_cvtepi32_epi16(RoundToBf16(_mm512_loadu_ps(v + d))));
    for (uint32_t i = 0; i < kLanes; ++i) values[size_t{d + i} * 2] = row[i];
  }
}

}  // namespace

const AttentionFormat& Bf16Attention() {
  static const Bf16AttentionFormat format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
