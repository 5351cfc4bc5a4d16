// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/row_ops.h"

#include <cmath>

#include "kernels/api/linear.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

// Squares in float64, so that no finite row overflows.
double SquareSum(std::span<const float> x) {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
  for (size_t c = 0; c < x.size(); c += kLanes) {
    const __m512 v = _mm512_maskz_loadu_ps(TailMask(x.size() - c), x.data() + c);
    const __m512d v0 = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d v1 = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    low = _mm512_fmadd_pd(v0, v0, low);
    high = _mm512_fmadd_pd(v1, v1, high);
  }
  return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
}

}  // namespace

void RmsNorm(std::span<const float> x, std::span<const float> weight, float epsilon,
             std::span<float> out) {
  const double mean = SquareSum(x) / static_cast<double>(x.size());
  const __m512 scale = _mm512_set1_ps(static_cast<float>(1 / std::sqrt(mean + epsilon)));
  for (size_t c = 0; c < x.size(); c += kLanes) {
    const __mmask16 mask = TailMask(x.size() - c);
    const __m512 v = _mm512_maskz_loadu_ps(mask, x.data() + c);
    const __m512 w = _mm512_maskz_loadu_ps(mask, weight.data() + c);
    _mm512_mask_storeu_ps(out.data() + c, mask, _mm512_mul_ps(_mm512_mul_ps(v, scale), w));
  }
}

void SwiGlu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (size_t c = 0; c < gate.size(); c += kLanes) {
    const __mmask16 mask = TailMask(gate.size() - c);
    const __m512 g = _mm512_maskz_loadu_ps(mask, gate.data() + c);
    const __m512 u = _mm512_maskz_loadu_ps(mask, up.data() + c);
    // exp may be infinite: a finite gate divided by infinity is 0.
    const __m512 e = Exp(_mm512_sub_ps(_mm512_setzero_ps(), g));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, e));
    _mm512_mask_storeu_ps(out.data() + c, mask, _mm512_mul_ps(silu, u));
  }
}

void Add(std::span<float> x, std::span<const float> y) {
  for (size_t c = 0; c < x.size(); c += kLanes) {
    const __mmask16 mask = TailMask(x.size() - c);
    const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x.data() + c),
                                     _mm512_maskz_loadu_ps(mask, y.data() + c));
    _mm512_mask_storeu_ps(x.data() + c, mask, sum);
  }
}

void AddTile(float* x, size_t stride, const float* y, uint32_t rows, uint32_t columns) {
  const __mmask16 low = TailMask(columns);
  const __mmask16 high = columns > kLanes ? TailMask(columns - kLanes) : __mmask16{0};
  for (uint32_t r = 0; r < rows; ++r, x += stride, y += kPanelOutputs) {
    const __m512 x0 = _mm512_maskz_loadu_ps(low, x);
    const __m512 x1 = _mm512_maskz_loadu_ps(high, x + kLanes);
    _mm512_mask_storeu_ps(x, low, _mm512_add_ps(x0, _mm512_loadu_ps(y)));
    _mm512_mask_storeu_ps(x + kLanes, high, _mm512_add_ps(x1, _mm512_loadu_ps(y + kLanes)));
  }
}

void RopeAdjacent(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  // Each angle serves two lanes; the even lane subtracts, the odd one adds.
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  for (size_t i = 0; i < cos.size(); i += kLanes / 2) {
    const size_t pairs = cos.size() - i < kLanes / 2 ? cos.size() - i : kLanes / 2;
    const __mmask16 mask = TailMask(2 * pairs), angles = TailMask(pairs);
    const __m512 v = _mm512_maskz_loadu_ps(mask, x.data() + 2 * i);
    const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(angles, cos.data() + i));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(angles, sin.data() + i));
    const __m512 swapped = _mm512_permute_ps(v, 0xb1);
    _mm512_mask_storeu_ps(x.data() + 2 * i, mask,
                          _mm512_fmaddsub_ps(v, c, _mm512_mul_ps(swapped, s)));
  }
}

void RopeHalves(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  const size_t half = cos.size();
  for (size_t i = 0; i < half; i += kLanes) {
    const __mmask16 mask = TailMask(half - i);
    const __m512 x0 = _mm512_maskz_loadu_ps(mask, x.data() + i);
    const __m512 x1 = _mm512_maskz_loadu_ps(mask, x.data() + half + i);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cos.data() + i);
    const __m512 s = _mm512_maskz_loadu_ps(mask, sin.data() + i);
    _mm512_mask_storeu_ps(x.data() + i, mask, _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s)));
    _mm512_mask_storeu_ps(x.data() + half + i, mask, _mm512_fmadd_ps(x1, c, _mm512_mul_ps(x0, s)));
  }
}

void MergeSegment(uint32_t head_dim, float segment_max, float segment_sum, const float* segment_out,
                  float* total_max, float* total_sum, float* total_out) {
  const float max = segment_max > *total_max ? segment_max : *total_max;
  const __m512 keep = Exp2(_mm512_set1_ps(*total_max - max));
  const __m512 add = Exp2(_mm512_set1_ps(segment_max - max));
  *total_max = max;
  *total_sum = std::fma(segment_sum, _mm512_cvtss_f32(add), *total_sum * _mm512_cvtss_f32(keep));
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const __mmask16 mask = TailMask(head_dim - d);
    const __m512 kept = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, total_out + d), keep);
    const __m512 segment = _mm512_maskz_loadu_ps(mask, segment_out + d);
    _mm512_mask_storeu_ps(total_out + d, mask, _mm512_fmadd_ps(segment, add, kept));
  }
}

}  // namespace baton::kernels::BATON_AVX512
