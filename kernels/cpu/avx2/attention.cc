// SPDX-License-Identifier: Apache-2.0
// Attention in float32 over float32 slices, or over bf16 or int8 slices that
// are widened on the way into the registers. Scales of int8 tokens multiply
// scores and weights, not the codes.
#include <type_traits>

#include "kernels/cpu/avx2/float_tile.h"
#include "kernels/cpu/avx2/formats.h"
#include "kernels/packing/kv_slices.h"

namespace baton::kernels::avx2 {
namespace {

// Rows of a register tile.
constexpr uint32_t kRows = 6;
// So few rows wait for memory.
constexpr int kFetchRows = 4;

// Codes of int8 slices as pairs of rows: K [head_dim][32], V [32][head_dim].
struct Int8Pairs {
  static constexpr size_t Bytes(uint32_t width) { return size_t{width} * 2; }
  template <bool kOdd>
  __attribute__((always_inline)) static inline __m256 Load(const std::byte* pair, uint32_t width,
                                                           uint32_t column) {
    const std::byte* codes = pair + (kOdd ? width : 0) + column;
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))));
  }
};
template <typename Pairs>
inline constexpr bool kScaled = std::is_same_v<Pairs, Int8Pairs>;

// Brings the lines of pair `p` of the next K slice in, and those of the V slice
// that belongs to this one.
template <typename Pairs>
BATON_INLINE void FetchPair(const std::byte* next_keys, const std::byte* values, uint32_t p) {
  constexpr size_t kBytes = Pairs::Bytes(kBlockTokens);
  for (size_t line = p * kBytes; line < (p + 1) * kBytes; line += 64) {
    _mm_prefetch(next_keys + line, _MM_HINT_T0);
    _mm_prefetch(values + line, _MM_HINT_T1);
  }
}

// Scores of R rows against one block; sums over dimensions in order.
template <typename Pairs, int R>
__attribute__((noinline)) void ScoreBlock(const float* queries, const std::byte* keys,
                                          const std::byte* next_keys, const std::byte* values,
                                          uint32_t head_dim, float* scores) {
  constexpr int V = kTileVectors<R>;
  for (uint32_t token = 0; token < kBlockTokens; token += V * kLanes) {
    __m256 sum[R][V];
    Clear(sum);
#pragma GCC unroll 1
    for (uint32_t d = 0; d < head_dim; d += 2) {
      if constexpr (R <= kFetchRows) {
        if (token == 0) FetchPair<Pairs>(next_keys, values, d / 2);
      }
      AddPair<Pairs, R, V>(keys + d / 2 * Pairs::Bytes(kBlockTokens), kBlockTokens, token,
                           queries + d, head_dim, 1, sum);
    }
    Store(sum, scores + token, kSegmentTokens);
  }
}

// x[t] *= scale of token t, over one block of an int8 slice.
BATON_INLINE void ScaleTokens(const std::byte* slice, uint32_t head_dim, float* x) {
  const std::byte* scales = Int8Scales(slice, head_dim);
  for (uint32_t t = 0; t < kBlockTokens; t += kLanes) {
    const __m128i bits = _mm_load_si128(reinterpret_cast<const __m128i*>(scales + 2 * t));
    const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    _mm256_store_ps(x + t, _mm256_mul_ps(_mm256_load_ps(x + t), scale));
  }
}
// The same of R rows and all blocks of a task.
template <int R>
void ScaleRows(const std::byte* const* slices, const SegmentTask& task, float* x) {
  for (uint32_t b = 0; b < task.blocks; ++b) {
    for (int r = 0; r < R; ++r) {
      ScaleTokens(slices[b], task.head_dim, x + r * kSegmentTokens + b * kBlockTokens);
    }
  }
}

// All bits in the lanes of tokens [first, first + 8) below `seen`.
BATON_INLINE __m256 SeenMask(uint32_t seen, uint32_t first) {
  return _mm256_castsi256_ps(TailMask(seen > first ? seen - first : 0));
}

// Scores become weights 2^(score - max), zero where the row sees nothing.
__attribute__((noinline)) void Weigh(float* scores, uint32_t seen, uint32_t tokens, float* max,
                                     float* sum) {
  const __m256 none = _mm256_set1_ps(kNoScore);
  __m256 lane_max = none;
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    const __m256 score = _mm256_blendv_ps(none, _mm256_load_ps(scores + t), SeenMask(seen, t));
    lane_max = _mm256_max_ps(lane_max, score);
  }
  *max = ReduceMax(lane_max);
  const __m256 row_max = _mm256_set1_ps(*max);
  __m256 lane_sum = _mm256_setzero_ps();
  for (uint32_t t = 0; t < tokens; t += kLanes) {
    const __m256 weight =
        _mm256_and_ps(SeenMask(seen, t), Exp2(_mm256_sub_ps(_mm256_load_ps(scores + t), row_max)));
    lane_sum = _mm256_add_ps(lane_sum, weight);
    _mm256_store_ps(scores + t, weight);
  }
  *sum = ReduceAdd(lane_sum);
}

// out[r, dim .. dim + 8 V) = sum over tokens of weight * V, in order.
template <typename Pairs, int R, int V>
__attribute__((noinline)) void WeighValues(const SegmentTask& task, const float* weights,
                                           uint32_t dim, float* out) {
  __m256 sum[R][V];
  Clear(sum);
  for (uint32_t b = 0; b < task.blocks; ++b) {
    const std::byte* values = task.values[b];
#pragma GCC unroll 1
    for (uint32_t t = 0; t < kBlockTokens; t += 2) {
      AddPair<Pairs, R, V>(values, task.head_dim, dim, weights + t, kSegmentTokens, 1, sum);
      values += Pairs::Bytes(task.head_dim);
    }
    weights += kBlockTokens;
  }
  Store(sum, out + dim, task.head_dim);
}

// Rows [first, first + R) of the task.
template <typename Pairs, int R>
void AttendRows(const SegmentTask& task, uint32_t first) {
  alignas(64) float scores[R * kSegmentTokens];
  for (uint32_t b = 0; b < task.blocks; ++b) {
    const std::byte* next_keys = KeysAfter(task, b);
    ScoreBlock<Pairs, R>(task.queries + size_t{first} * task.head_dim, task.keys[b], next_keys,
                         task.values[b], task.head_dim, scores + b * kBlockTokens);
  }
  if constexpr (kScaled<Pairs>) ScaleRows<R>(task.keys, task, scores);
  for (uint32_t r = 0; r < R; ++r) {
    const uint32_t position = task.positions[first + r];
    const uint32_t seen = position < task.first_token ? 0 : position - task.first_token + 1;
    Weigh(scores + r * kSegmentTokens, seen, task.blocks * kBlockTokens, task.max + first + r,
          task.sum + first + r);
  }
  if constexpr (kScaled<Pairs>) ScaleRows<R>(task.values, task, scores);
  constexpr int V = kTileVectors<R>;
  float* out = task.out + size_t{first} * task.head_dim;
  uint32_t dim = 0;
  for (; dim + V * kLanes <= task.head_dim; dim += V * kLanes) {
    WeighValues<Pairs, R, V>(task, scores, dim, out);
  }
  if (dim < task.head_dim) WeighValues<Pairs, R, 2>(task, scores, dim, out);
}

template <typename Slices, typename Pairs>
class Attention final : public Slices {
 public:
  explicit Attention(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  void Attend(const SegmentTask& task) const override {
    using Kernel = void(const SegmentTask&, uint32_t);
    static constexpr Kernel* kKernels[kRows] = {AttendRows<Pairs, 1>, AttendRows<Pairs, 2>,
                                                AttendRows<Pairs, 3>, AttendRows<Pairs, 4>,
                                                AttendRows<Pairs, 5>, AttendRows<Pairs, 6>};
    const uint32_t first_rows = task.rows <= kRows ? task.rows : (task.rows + 1) / 2;
    kKernels[first_rows - 1](task, 0);
    if (first_rows < task.rows) kKernels[task.rows - first_rows - 1](task, first_rows);
  }

 private:
  const std::string_view name_;
};

static_assert(kAttentionRows <= 2 * kRows);

}  // namespace

const AttentionFormat& F32Attention() {
  static const Attention<F32Slices, F32Pairs> format("avx2/attention-f32/1");
  return format;
}
const AttentionFormat& Bf16Attention() {
  static const Attention<Bf16Slices, Bf16Pairs> format("avx2/attention-bf16/1");
  return format;
}

const AttentionFormat& Int8Attention() {
  static const Attention<Int8Slices, Int8Pairs> format("avx2/attention-int8/1");
  return format;
}

}  // namespace baton::kernels::avx2
