// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/attention_rows.h"
#include "kernels/cpu/avx512/exact.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

// 2^x to 2e-7 relative; 0 below -126. REQUIRES: x <= 0 or NaN.
inline __m512 Exp2OrZero(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-127), x);  // the second operand when it is NaN
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, whole);     // in [-0.5, 0.5]
  __m512 p = _mm512_set1_ps(1.5403530393e-4f);  // Taylor: ln(2)^i / i!
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558146e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291076e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504108665e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022650696e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718056e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1));
  p = _mm512_scalef_ps(p, whole);
  return _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126), _CMP_LT_OQ),
                            _mm512_setzero_ps());
}

// Scores of kRows rows against one block; sums over dimensions in order.
template <uint32_t kRows>
[[gnu::noinline]] void ScoreBlock(const float* queries, const float* keys, uint32_t head_dim,
                                  float* scores) {
  __m512 sum[kRows][2];
  for (uint32_t r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  for (uint32_t d = 0; d < head_dim; ++d, keys += kBlockTokens) {
    const __m512 k0 = _mm512_load_ps(keys), k1 = _mm512_load_ps(keys + kLanes);
#pragma GCC unroll 12
    for (uint32_t r = 0; r < kRows; ++r) {
      const __m512 q = _mm512_set1_ps(queries[size_t{r} * head_dim + d]);
      sum[r][0] = _mm512_fmadd_ps(q, k0, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(q, k1, sum[r][1]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    _mm512_store_ps(scores + r * kSegmentTokens, sum[r][0]);
    _mm512_store_ps(scores + r * kSegmentTokens + kLanes, sum[r][1]);
  }
}

// out[r, 0..kVectors * 16) = sum over tokens of weight * V, in order.
template <uint32_t kRows, uint32_t kVectors>
[[gnu::noinline]] void WeighValues(const SegmentTask& task, const float* weights, uint32_t dim) {
  __m512 sum[kRows][kVectors];
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (uint32_t b = 0; b < task.blocks; ++b) {
    const float* values = reinterpret_cast<const float*>(task.values[b]) + dim;
    for (uint32_t t = 0; t < kBlockTokens; ++t, values += task.head_dim, ++weights) {
      __m512 value[kVectors];
      for (uint32_t v = 0; v < kVectors; ++v) value[v] = _mm512_load_ps(values + v * kLanes);
#pragma GCC unroll 12
      for (uint32_t r = 0; r < kRows; ++r) {
        const __m512 weight = _mm512_set1_ps(weights[r * kSegmentTokens]);
        for (uint32_t v = 0; v < kVectors; ++v) {
          sum[r][v] = _mm512_fmadd_ps(weight, value[v], sum[r][v]);
        }
      }
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      _mm512_store_ps(task.out + size_t{r} * task.head_dim + dim + v * kLanes, sum[r][v]);
    }
  }
}

template <uint32_t kRows>
void AttendRows(const SegmentTask& task) {
  alignas(64) float scores[kRows * kSegmentTokens];
  for (uint32_t b = 0; b < task.blocks; ++b) {
    ScoreBlock<kRows>(task.queries, reinterpret_cast<const float*>(task.keys[b]), task.head_dim,
                      scores + b * kBlockTokens);
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    WeighInFloat<Exp2OrZero>(scores + r * kSegmentTokens, SeenTokens(task, r),
                             task.blocks * kBlockTokens, task.max + r, task.sum + r);
  }
  uint32_t dim = 0;
  for (; dim + 2 * kLanes <= task.head_dim; dim += 2 * kLanes)
    WeighValues<kRows, 2>(task, scores, dim);
  if (dim < task.head_dim) WeighValues<kRows, 1>(task, scores, dim);
}

template <uint32_t kRows>
struct Rows {
  static void Attend(const SegmentTask& task) { AttendRows<kRows>(task); }
};

class F32AttentionFormat final : public F32Slices {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/attention-f32/1"; }
  void Attend(const SegmentTask& task) const override { AttendByRows<Rows>(task); }
};

}  // namespace

const AttentionFormat& F32Attention() {
  static const F32AttentionFormat format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
