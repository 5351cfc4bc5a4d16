// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/s8_activations.h"

#include <bit>
#include <limits>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::avx512 {
namespace {

// Groups below this are taken as zeros: 127 / max would overflow.
constexpr float kSmallestMax = 1e-36f;

constexpr uint32_t Groups(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }

class S8ActivationFormat final : public ActivationFormat {
 public:
  std::string_view name() const override { return "avx512/s8-g32-outliers"; }
  uint32_t PaddedInputs(uint32_t inputs) const override { return Groups(inputs) * kGroup; }
  size_t TileBytes(uint32_t inputs) const override {
    const size_t bytes = size_t{Groups(inputs)} * (S8Tile::kWords + 1) * kTileRows * 4;
    return (bytes + 63) / 64 * 64;
  }
  void PackGroup(const float* x, std::byte* tile, uint32_t inputs, uint32_t tile_rows, uint32_t row,
                 uint32_t group) const override;
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

void S8ActivationFormat::PackGroup(const float* x, std::byte* tile, uint32_t inputs,
                                   uint32_t tile_rows, uint32_t row, uint32_t group) const {
  __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + kLanes);
  float max = MaxAbs(x0, x1);
  uint32_t outlier = 0;
  const uint32_t large = Above(x0, x1, max * (1 / S8Tile::kOutlierRatio));
  if ((large & (large - 1)) == 0 && max >= kSmallestMax) {
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
}

}  // namespace

const ActivationFormat& S8Activations() {
  static const S8ActivationFormat format;
  return format;
}

}  // namespace baton::kernels::avx512
