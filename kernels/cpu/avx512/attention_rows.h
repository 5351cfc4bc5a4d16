// SPDX-License-Identifier: Apache-2.0
// What attention kernels share: one function for each number of rows, and weights
// in float32.
#pragma once

#include <array>
#include <utility>

#include "kernels/api/attention.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {
// Each file has its own: GCC 12 takes instances for templates of unnamed namespaces
// for one and the same, of whichever file.
namespace {

// Calls Rows<task.rows>::Attend(task).
template <template <uint32_t> typename Rows>
void AttendByRows(const SegmentTask& task) {
  using Kernel = void(const SegmentTask&);
  static constexpr auto kKernels = []<uint32_t... R>(std::integer_sequence<uint32_t, R...>) {
    return std::array<Kernel*, sizeof...(R)>{Rows<R + 1>::Attend...};
  }
  (std::make_integer_sequence<uint32_t, kAttentionRows>());
  kKernels[task.rows - 1](task);
}

// Lanes of tokens [first, first + 16) that a row which sees `seen` tokens sees.
BATON_INLINE __mmask16 SeenMask(uint32_t seen, uint32_t first) {
  return seen <= first ? __mmask16{0} : TailMask(seen - first);
}

// How many tokens of the segment a row sees.
BATON_INLINE uint32_t SeenTokens(const SegmentTask& task, uint32_t row) {
  const uint32_t position = task.positions[row];
  return position < task.first_token ? 0 : position - task.first_token + 1;
}

// Scores become weights 2^(score - max), zero where the row sees nothing.
template <__m512 (*kExp2)(__m512)>
__attribute__((noinline)) void WeighInFloat(float* scores, uint32_t seen, uint32_t tokens,
                                            float* max, float* sum) {
  __m512 lane_max = _mm512_set1_ps(kNoScore);
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    lane_max =
        _mm512_mask_max_ps(lane_max, SeenMask(seen, t), lane_max, _mm512_load_ps(scores + t));
  }
  *max = _mm512_reduce_max_ps(lane_max);
  const __m512 row_max = _mm512_set1_ps(*max);
  __m512 lane_sum = _mm512_setzero_ps();
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    const __m512 score = _mm512_sub_ps(_mm512_load_ps(scores + t), row_max);
    const __m512 weight = _mm512_maskz_mov_ps(SeenMask(seen, t), kExp2(score));
    lane_sum = _mm512_add_ps(lane_sum, weight);
    _mm512_store_ps(scores + t, weight);
  }
  *sum = _mm512_reduce_add_ps(lane_sum);
}

}  // namespace
}  // namespace baton::kernels::BATON_AVX512
