// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/s8_activations.h"

#include <bit>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::avx512 {
namespace {

// Groups below this are taken as zeros: 127 / max would overflow.
constexpr float kSmallestMax = 1e-36f;

constexpr uint32_t Groups(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }

class S8ActivationFormat final : public ActivationFormat {
 public:
  std::string_view name() const override { return "avx512/s8-g32"; }
  uint32_t PaddedInputs(uint32_t inputs) const override { return Groups(inputs) * kGroup; }
  size_t TileBytes(uint32_t inputs) const override {
    const size_t bytes = size_t{Groups(inputs)} * S8Tile::kWords * kTileRows * 4;
    return (bytes + 63) / 64 * 64;
  }
  void PackGroup(const float* x, std::byte* tile, uint32_t inputs, uint32_t tile_rows, uint32_t row,
                 uint32_t group) const override;
};

// The sum of 32 s8.
int32_t SumBytes(__m256i q) {
  const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
}

void S8ActivationFormat::PackGroup(const float* x, std::byte* tile, uint32_t /*inputs*/,
                                   uint32_t tile_rows, uint32_t row, uint32_t group) const {
  const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + kLanes);
  const float max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
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
  const int32_t q_sum = SumBytes(q);

  uint32_t* words =
      reinterpret_cast<uint32_t*>(tile) + size_t{group} * S8Tile::kWords * tile_rows + row;
  for (uint32_t w = 0; w < S8Tile::kQuads; ++w) words[w * tile_rows] = quads[w];
  // A NaN would vanish in the integers; the scale carries it to the results.
  words[S8Tile::kScale * tile_rows] =
      has_nan ? std::bit_cast<uint32_t>(__builtin_nanf("")) : std::bit_cast<uint32_t>(scale);
  words[S8Tile::kShift4 * tile_rows] = static_cast<uint32_t>(-8 * q_sum);
  words[S8Tile::kShift8 * tile_rows] = static_cast<uint32_t>(-128 * q_sum);
  words[S8Tile::kSum * tile_rows] =
      std::bit_cast<uint32_t>(_mm512_reduce_add_ps(_mm512_add_ps(x0, x1)));
}

}  // namespace

const ActivationFormat& S8Activations() {
  static const S8ActivationFormat format;
  return format;
}

}  // namespace baton::kernels::avx512
