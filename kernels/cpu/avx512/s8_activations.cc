// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/s8_activations.h"

#include <bit>
#include <limits>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

// Groups below this are taken as zeros: 127 / max would overflow.
constexpr float kSmallestMax = 1e-36f;

constexpr uint32_t Groups(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }

class S8ActivationFormat final : public ActivationFormat {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/s8-g32-outliers"; }
  uint32_t PaddedInputs(uint32_t inputs) const override { return Groups(inputs) * kGroup; }
  size_t TileBytes(uint32_t inputs) const override {
    const uint32_t groups = Groups(inputs);
    const size_t words = S8Tile::SumPairs(groups, kTileRows) + (groups + 1) / 2 * kTileRows;
    const size_t bytes = words * 4;
    return (bytes + 63) / 64 * 64;
  }
  void PackGroup(const float* x, std::byte* tile, uint32_t inputs, uint32_t tile_rows, uint32_t row,
                 uint32_t group) const override;
  void PackGroups(const float* x, size_t stride, std::byte* tile, uint32_t inputs,
                  uint32_t tile_rows, uint32_t group, uint32_t count) const override;

 private:
  template <uint32_t R>
  void PackRows(const float* x, size_t stride, std::byte* tile, uint32_t inputs,
                uint32_t group) const;
};

// The sums of the first and the second 16 s8.
void SumHalves(__m256i q, int32_t sums[2]) {
  const __m256i quads = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  const __m128i pairs =
      _mm_hadd_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
  const __m128i halves = _mm_hadd_epi32(pairs, pairs);
  sums[0] = _mm_cvtsi128_si32(halves);
  sums[1] = _mm_extract_epi32(halves, 1);
}

float MaxAbs(__m512 x0, __m512 x1) {
  return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
}

// Which of 32 values are above `limit` in magnitude.
uint32_t Above(__m512 x0, __m512 x1, float limit) {
  const __m512 bound = _mm512_set1_ps(limit);
  const uint32_t low = _mm512_cmp_ps_mask(_mm512_abs_ps(x0), bound, _CMP_GT_OQ);
  const uint32_t high = _mm512_cmp_ps_mask(_mm512_abs_ps(x1), bound, _CMP_GT_OQ);
  return low | high << 16;
}

// Puts a group's sum into its pair. Stores of 2 bytes: another thread may write
// the other half.
BATON_INLINE void StoreSum(uint16_t sum, std::byte* tile, uint32_t groups, uint32_t tile_rows,
                           uint32_t row, uint32_t group) {
  uint16_t* pair = reinterpret_cast<uint16_t*>(reinterpret_cast<uint32_t*>(tile) +
                                               S8Tile::SumPairs(groups, tile_rows) +
                                               size_t{group / 2} * tile_rows + row);
  pair[group % 2] = sum;
  if (group % 2 == 0 && group + 1 == groups) pair[1] = 0;
}

void S8ActivationFormat::PackGroup(const float* x, std::byte* tile, uint32_t inputs,
                                   uint32_t tile_rows, uint32_t row, uint32_t group) const {
  __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + kLanes);
  float max = MaxAbs(x0, x1);
  uint32_t outlier = 0;
  const uint32_t large = Above(x0, x1, max * (1 / S8Tile::kOutlierRatio));
  if (std::has_single_bit(large) && max >= kSmallestMax) {
    const auto index = static_cast<uint32_t>(std::countr_zero(large));
    outlier = (std::bit_cast<uint32_t>(x[index]) & ~S8Tile::kOutlierIndexMask) | index;
    x0 = _mm512_maskz_mov_ps(static_cast<__mmask16>(~large), x0);
    x1 = _mm512_maskz_mov_ps(static_cast<__mmask16>(~large >> 16), x1);
    max = MaxAbs(x0, x1);
  }
  const bool has_nan = _mm512_cmp_ps_mask(x0, x1, _CMP_UNORD_Q) != 0;
  const bool is_zero = max < kSmallestMax;
  const float scale = is_zero ? 0.0f : max * (1.0f / 127);
  const __m512 inverse = _mm512_set1_ps(is_zero ? 0.0f : 127.0f / max);
  const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse));
  const __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
  const __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(q0)),
                                            _mm512_cvtepi32_epi8(q1), 1);
  alignas(32) uint32_t quads[S8Tile::kQuads];
  _mm256_store_si256(reinterpret_cast<__m256i*>(quads), q);
  int32_t half_sums[2];
  SumHalves(q, half_sums);
  const int32_t q_sum = half_sums[0] + half_sums[1];

  uint32_t* words =
      reinterpret_cast<uint32_t*>(tile) + size_t{group} * S8Tile::kWords * tile_rows + row;
  for (uint32_t w = 0; w < S8Tile::kQuads; ++w) words[w * tile_rows] = quads[w];
  // A NaN would vanish in the integers; the scale carries it to the results.
  const float outlier_value = std::bit_cast<float>(outlier & ~S8Tile::kOutlierIndexMask);
  const float row_scale = has_nan ? std::numeric_limits<float>::quiet_NaN() : scale;
  words[S8Tile::kScale * tile_rows] = std::bit_cast<uint32_t>(row_scale);
  words[S8Tile::kShift4 * tile_rows] = static_cast<uint32_t>(-8 * q_sum);
  words[S8Tile::kShift8 * tile_rows] = static_cast<uint32_t>(-128 * q_sum);
  words[S8Tile::kSum * tile_rows] =
      std::bit_cast<uint32_t>(row_scale * static_cast<float>(q_sum) + outlier_value);
  for (uint32_t half = 0; half < 2; ++half) {
    words[(S8Tile::kShift6 + half) * tile_rows] = static_cast<uint32_t>(-32 * half_sums[half]);
  }
  reinterpret_cast<uint32_t*>(
      tile)[S8Tile::Outliers(Groups(inputs), tile_rows) + size_t{group} * tile_rows + row] =
      outlier;
  const __m256 sum = _mm256_set1_ps(std::bit_cast<float>(words[S8Tile::kSum * tile_rows]));
  const __m128i sum_bits = ToBf16(sum);
  StoreSum(static_cast<uint16_t>(_mm_cvtsi128_si32(sum_bits)), tile, Groups(inputs), tile_rows, row,
           group);
}

// Per lane r of the result: the largest of the 8 lanes of v[r].
BATON_INLINE __m256 MaxOfEach(const __m256 v[8]) {
  __m256 pairs[4], quads[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm256_max_ps(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                             _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m256d a = _mm256_castps_pd(pairs[2 * i]), b = _mm256_castps_pd(pairs[2 * i + 1]);
    quads[i] = _mm256_max_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                             _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  return _mm256_max_ps(_mm256_permute2f128_ps(quads[0], quads[1], 0x20),
                       _mm256_permute2f128_ps(quads[0], quads[1], 0x31));
}

// Per lane r of the results: the sums of the low and of the high 4 lanes of v[r].
BATON_INLINE void SumsOfEach(const __m256i v[8], __m256i* low, __m256i* high) {
  __m256i pairs[4], quads[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    quads[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                                _mm256_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  }
  *low = _mm256_permute2x128_si256(quads[0], quads[1], 0x20);
  *high = _mm256_permute2x128_si256(quads[0], quads[1], 0x31);
}

BATON_INLINE __m256 MaxOfHalves(__m512 x0, __m512 x1) {
  const __m512 max = _mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1));
  return _mm256_max_ps(_mm512_castps512_ps256(max), _mm512_extractf32x8_ps(max, 1));
}

// Where word [w][r] of R rows comes from: lanes of rows[0, 4) and rows[4, 6).
struct WordOrder {
  alignas(64) int32_t front[3][kLanes] = {}, back[3][kLanes] = {};
  __mmask16 is_back[3] = {};
};
template <uint32_t R>
constexpr WordOrder MakeWordOrder() {
  WordOrder order;
  for (uint32_t i = 0; i < S8Tile::kQuads * R; ++i) {
    const uint32_t row = i % R, word = i / R;
    if (row < 4) {
      order.front[i / kLanes][i % kLanes] = static_cast<int32_t>(row * 8 + word);
    } else {
      order.back[i / kLanes][i % kLanes] = static_cast<int32_t>((row - 4) * 8 + word);
      order.is_back[i / kLanes] =
          static_cast<__mmask16>(order.is_back[i / kLanes] | 1u << i % kLanes);
    }
  }
  return order;
}

// Writes q[r], quads of R rows, as words [kQuads][R].
template <uint32_t R>
BATON_INLINE void StoreQuads(const __m256i q[8], uint32_t* words) {
  static constexpr WordOrder kOrder = MakeWordOrder<R>();
  const auto pair = [q](uint32_t row) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(q[row]), q[row + 1], 1);
  };
  const __m512i front0 = pair(0), front1 = pair(2), back = pair(4);
#pragma GCC unroll 3
  for (uint32_t i = 0; i * kLanes < S8Tile::kQuads * R; ++i) {
    __m512i out = _mm512_permutex2var_epi32(front0, _mm512_load_si512(kOrder.front[i]), front1);
    if constexpr (R > 4) {
      out = _mm512_mask_permutexvar_epi32(out, kOrder.is_back[i], _mm512_load_si512(kOrder.back[i]),
                                          back);
    }
    if constexpr (R % 2 == 0) {
      _mm512_storeu_si512(words + i * kLanes, out);
    } else {
      _mm512_mask_storeu_epi32(words + i * kLanes, TailMask(S8Tile::kQuads * R - i * kLanes), out);
    }
  }
}

// PackGroup of R rows at once: what is one number of a row there is one lane
// here.
template <uint32_t R>
void S8ActivationFormat::PackRows(const float* x, size_t stride, std::byte* tile, uint32_t inputs,
                                  uint32_t group) const {
  __m512 x0[R], x1[R];
  __m256 halves[8];
  __mmask16 unordered = 0;
#pragma GCC unroll 8
  for (uint32_t r = 0; r < 8; ++r) {
    halves[r] = _mm256_setzero_ps();
    if (r >= R) continue;
    x0[r] = _mm512_loadu_ps(x + r * stride);
    x1[r] = _mm512_loadu_ps(x + r * stride + kLanes);
    unordered |= _mm512_cmp_ps_mask(x0[r], x1[r], _CMP_UNORD_Q);
    halves[r] = MaxOfHalves(x0[r], x1[r]);
  }
  if (unordered != 0) {
    for (uint32_t r = 0; r < R; ++r) PackGroup(x + r * stride, tile, inputs, R, r, group);
    return;
  }
  __m256 max = MaxOfEach(halves);
  alignas(32) float limits[8];
  _mm256_store_ps(limits, _mm256_mul_ps(max, _mm256_set1_ps(1 / S8Tile::kOutlierRatio)));
  uint32_t large[R], rows_with_outlier = 0;
#pragma GCC unroll 6
  for (uint32_t r = 0; r < R; ++r) {
    large[r] = Above(x0[r], x1[r], limits[r]);
    if (std::has_single_bit(large[r])) rows_with_outlier |= 1u << r;
  }
  rows_with_outlier &= _mm256_cmp_ps_mask(max, _mm256_set1_ps(kSmallestMax), _CMP_GE_OQ);
  alignas(32) uint32_t outliers[8] = {};
  if (rows_with_outlier != 0) {
#pragma GCC unroll 6
    for (uint32_t r = 0; r < R; ++r) {
      if ((rows_with_outlier >> r & 1) == 0) continue;
      const auto index = static_cast<uint32_t>(std::countr_zero(large[r]));
      outliers[r] =
          (std::bit_cast<uint32_t>(x[r * stride + index]) & ~S8Tile::kOutlierIndexMask) | index;
      x0[r] = _mm512_maskz_mov_ps(static_cast<__mmask16>(~large[r]), x0[r]);
      x1[r] = _mm512_maskz_mov_ps(static_cast<__mmask16>(~large[r] >> 16), x1[r]);
      halves[r] = MaxOfHalves(x0[r], x1[r]);
    }
    max = MaxOfEach(halves);
  }
  const __mmask8 is_nonzero = _mm256_cmp_ps_mask(max, _mm256_set1_ps(kSmallestMax), _CMP_NLT_UQ);
  const __m256 scale = _mm256_maskz_mul_ps(is_nonzero, max, _mm256_set1_ps(1.0f / 127));
  alignas(32) float inverses[8];
  _mm256_store_ps(inverses, _mm256_maskz_div_ps(is_nonzero, _mm256_set1_ps(127.0f), max));
  __m256i q[8], quads[8];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < 8; ++r) {
    q[r] = quads[r] = _mm256_setzero_si256();
    if (r >= R) continue;
    const __m512 inverse = _mm512_set1_ps(inverses[r]);
    const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0[r], inverse));
    const __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1[r], inverse));
    q[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(q0)),
                                   _mm512_cvtepi32_epi8(q1), 1);
    quads[r] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q[r]);
  }
  __m256i first, second;
  SumsOfEach(quads, &first, &second);
  const __m256i q_sum = _mm256_add_epi32(first, second);
  const __m256i outlier_words = _mm256_load_si256(reinterpret_cast<const __m256i*>(outliers));
  const __m256 outlier_values = _mm256_castsi256_ps(_mm256_andnot_si256(
      _mm256_set1_epi32(static_cast<int>(S8Tile::kOutlierIndexMask)), outlier_words));
  const __m256 sum = _mm256_add_ps(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(q_sum)), outlier_values);

  uint32_t* words = reinterpret_cast<uint32_t*>(tile) + size_t{group} * S8Tile::kWords * R;
  StoreQuads<R>(q, words);
  const auto store = [](uint32_t* to, __m256i value) {
    _mm256_mask_storeu_epi32(to, (1u << R) - 1, value);
  };
  const auto times = [](__m256i value, int shift) {  // value * -2^shift
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(value, shift));
  };
  store(words + S8Tile::kScale * R, _mm256_castps_si256(scale));
  store(words + S8Tile::kShift4 * R, times(q_sum, 3));
  store(words + S8Tile::kShift8 * R, times(q_sum, 7));
  store(words + S8Tile::kSum * R, _mm256_castps_si256(sum));
  store(words + S8Tile::kShift6 * R, times(first, 5));
  store(words + (S8Tile::kShift6 + 1) * R, times(second, 5));
  store(reinterpret_cast<uint32_t*>(tile) + S8Tile::Outliers(Groups(inputs), R) + size_t{group} * R,
        outlier_words);
  alignas(16) uint16_t sums[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(sums), ToBf16(sum));
#pragma GCC unroll 6
  for (uint32_t r = 0; r < R; ++r) StoreSum(sums[r], tile, Groups(inputs), R, r, group);
}

void S8ActivationFormat::PackGroups(const float* x, size_t stride, std::byte* tile, uint32_t inputs,
                                    uint32_t tile_rows, uint32_t group, uint32_t count) const {
  using Pack =
      void (S8ActivationFormat::*)(const float*, size_t, std::byte*, uint32_t, uint32_t) const;
  static constexpr Pack kPack[kTileRows] = {
      &S8ActivationFormat::PackRows<1>, &S8ActivationFormat::PackRows<2>,
      &S8ActivationFormat::PackRows<3>, &S8ActivationFormat::PackRows<4>,
      &S8ActivationFormat::PackRows<5>, &S8ActivationFormat::PackRows<6>};
  const Pack pack = kPack[tile_rows - 1];
  for (uint32_t g = 0; g < count; ++g) {
    (this->*pack)(x + size_t{g} * kGroup, stride, tile, inputs, group + g);
  }
}

}  // namespace

const ActivationFormat& S8Activations() {
  static const S8ActivationFormat format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
