// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2/row_ops.h"

#include <cmath>

#include "kernels/api/linear.h"
#include "kernels/cpu/avx2/simd.h"

namespace baton::kernels::avx2 {
namespace {

// Squares in float64, so that no finite row overflows.
double SquareSum(std::span<const float> x) {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  for (size_t c = 0; c < x.size(); c += kLanes) {
    const __m256 v = LoadLanes(x.data() + c, x.size() - c);
    const __m256d v0 = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    const __m256d v1 = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    low = _mm256_fmadd_pd(v0, v0, low);
    high = _mm256_fmadd_pd(v1, v1, high);
  }
  const __m256d sum = _mm256_add_pd(low, high);
  const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
  return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

}  // namespace

void RmsNorm(std::span<const float> x, std::span<const float> weight, float epsilon,
             std::span<float> out) {
  const double mean = SquareSum(x) / static_cast<double>(x.size());
  const __m256 scale = _mm256_set1_ps(static_cast<float>(1 / std::sqrt(mean + epsilon)));
  for (size_t c = 0; c < x.size(); c += kLanes) {
    const size_t left = x.size() - c;
    const __m256 v = LoadLanes(x.data() + c, left);
    const __m256 w = LoadLanes(weight.data() + c, left);
    StoreLanes(out.data() + c, left, _mm256_mul_ps(_mm256_mul_ps(v, scale), w));
  }
}

void SwiGlu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (size_t c = 0; c < gate.size(); c += kLanes) {
    const size_t left = gate.size() - c;
    const __m256 g = LoadLanes(gate.data() + c, left);
    const __m256 u = LoadLanes(up.data() + c, left);
    // exp may be infinite: a finite gate divided by infinity is 0.
    const __m256 e = Exp(_mm256_sub_ps(_mm256_setzero_ps(), g));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    StoreLanes(out.data() + c, left, _mm256_mul_ps(silu, u));
  }
}

void Add(std::span<float> x, std::span<const float> y) {
  for (size_t c = 0; c < x.size(); c += kLanes) {
    const size_t left = x.size() - c;
    const __m256 sum = _mm256_add_ps(LoadLanes(x.data() + c, left), LoadLanes(y.data() + c, left));
    StoreLanes(x.data() + c, left, sum);
  }
}

void AddTile(float* x, size_t stride, const float* y, uint32_t rows, uint32_t columns) {
  for (uint32_t r = 0; r < rows; ++r, x += stride, y += kPanelOutputs) {
    Add({x, columns}, {y, columns});
  }
}

void RopeAdjacent(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  // Each angle serves two lanes; the even lane subtracts, the odd one adds.
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (size_t i = 0; i < cos.size(); i += kLanes / 2) {
    const size_t pairs = cos.size() - i < kLanes / 2 ? cos.size() - i : kLanes / 2;
    const __m256 v = LoadLanes(x.data() + 2 * i, 2 * pairs);
    const __m256 c = _mm256_permutevar8x32_ps(LoadLanes(cos.data() + i, cos.size() - i), twice);
    const __m256 s = _mm256_permutevar8x32_ps(LoadLanes(sin.data() + i, sin.size() - i), twice);
    const __m256 swapped = _mm256_permute_ps(v, 0xb1);
    StoreLanes(x.data() + 2 * i, 2 * pairs, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(swapped, s)));
  }
}

void RopeHalves(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  const size_t half = cos.size();
  for (size_t i = 0; i < half; i += kLanes) {
    const size_t left = half - i;
    const __m256 x0 = LoadLanes(x.data() + i, left);
    const __m256 x1 = LoadLanes(x.data() + half + i, left);
    const __m256 c = LoadLanes(cos.data() + i, left);
    const __m256 s = LoadLanes(sin.data() + i, left);
    StoreLanes(x.data() + i, left, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
    StoreLanes(x.data() + half + i, left, _mm256_fmadd_ps(x1, c, _mm256_mul_ps(x0, s)));
  }
}

void MergeSegment(uint32_t head_dim, float segment_max, float segment_sum, const float* segment_out,
                  float* total_max, float* total_sum, float* total_out) {
  const float max = segment_max > *total_max ? segment_max : *total_max;
  const __m256 keep = Exp2(_mm256_set1_ps(*total_max - max));
  const __m256 add = Exp2(_mm256_set1_ps(segment_max - max));
  *total_max = max;
  *total_sum = std::fma(segment_sum, _mm256_cvtss_f32(add), *total_sum * _mm256_cvtss_f32(keep));
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const size_t left = head_dim - d;
    const __m256 kept = _mm256_mul_ps(LoadLanes(total_out + d, left), keep);
    const __m256 segment = LoadLanes(segment_out + d, left);
    StoreLanes(total_out + d, left, _mm256_fmadd_ps(segment, add, kept));
  }
}

}  // namespace baton::kernels::avx2
