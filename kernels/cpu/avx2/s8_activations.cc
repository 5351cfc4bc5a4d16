// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2/s8_activations.h"

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/simd.h"

namespace baton::kernels::avx2 {
namespace {

constexpr int kVectors = kGroup / kLanes;

class S8ActivationFormat final : public S8TileFormat<S8Tile> {
 public:
  std::string_view name() const override { return "avx2/s8-g32-outliers"; }
  void PackGroup(const float* x, std::byte* tile, uint32_t inputs, uint32_t tile_rows, uint32_t row,
                 uint32_t group) const override;
};

BATON_INLINE float MaxAbs(const __m256 (&x)[kVectors]) {
  return ReduceMax(
      _mm256_max_ps(_mm256_max_ps(Abs(x[0]), Abs(x[1])), _mm256_max_ps(Abs(x[2]), Abs(x[3]))));
}

// Which of 32 values are above `limit` in magnitude.
BATON_INLINE uint32_t Above(const __m256 (&x)[kVectors], float limit) {
  const __m256 bound = _mm256_set1_ps(limit);
  uint32_t above = 0;
  for (int v = 0; v < kVectors; ++v) {
    const int mask = _mm256_movemask_ps(_mm256_cmp_ps(Abs(x[v]), bound, _CMP_GT_OQ));
    above |= static_cast<uint32_t>(mask) << (v * kLanes);
  }
  return above;
}

BATON_INLINE bool HasNan(const __m256 (&x)[kVectors]) {
  const __m256 low = _mm256_cmp_ps(x[0], x[1], _CMP_UNORD_Q);
  return _mm256_movemask_ps(_mm256_or_ps(low, _mm256_cmp_ps(x[2], x[3], _CMP_UNORD_Q))) != 0;
}

// 32 rounded values as s8, in order.
BATON_INLINE __m256i RoundToBytes(const __m256 (&x)[kVectors], float inverse) {
  __m256i q[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    q[v] = _mm256_cvtps_epi32(_mm256_mul_ps(x[v], _mm256_set1_ps(inverse)));
  }
  // Packing works on halves of 128 bits: words 0 4 1 5 of the result follow
  // each other.
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of the bytes at places 0, 1 and 2, 3 of the quads of 16 inputs.
struct PairSums {
  int32_t low, high;

  // As two s16, where a weight stands for itself less 8.
  uint32_t Shift4() const {
    return static_cast<uint16_t>(-8 * low) | static_cast<uint32_t>(-8 * high) << 16;
  }
};
BATON_INLINE PairSums SumPairs(__m128i q) {
  __m128i sum = _mm_maddubs_epi16(_mm_set1_epi8(1), q);
  sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
  const int32_t both = _mm_cvtsi128_si32(sum);
  return {static_cast<int16_t>(both), static_cast<int16_t>(both >> 16)};
}

void S8ActivationFormat::PackGroup(const float* x, std::byte* tile, uint32_t inputs,
                                   uint32_t tile_rows, uint32_t row, uint32_t group) const {
  __m256 values[kVectors];
  for (int v = 0; v < kVectors; ++v) values[v] = _mm256_loadu_ps(x + v * kLanes);
  float max = MaxAbs(values);
  const uint32_t outlier = OutlierWord(x, Above(values, max * (1 / kOutlierRatio)), max);
  if (outlier != 0) {
    alignas(32) float others[kGroup];
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(others + v * kLanes, values[v]);
    others[outlier & kOutlierIndexMask] = 0;
    for (int v = 0; v < kVectors; ++v) values[v] = _mm256_load_ps(others + v * kLanes);
    max = MaxAbs(values);
  }
  const S8Rounding rounding = RoundingOf(max);
  const __m256i q = RoundToBytes(values, rounding.inverse);
  alignas(32) uint32_t quads[S8Tile::kQuads];
  _mm256_store_si256(reinterpret_cast<__m256i*>(quads), q);
  const PairSums first = SumPairs(_mm256_castsi256_si128(q));
  const PairSums second = SumPairs(_mm256_extracti128_si256(q, 1));
  const PairSums all = {first.low + second.low, first.high + second.high};
  uint32_t* shifts =
      StoreS8Record<S8Tile>(quads, all.low + all.high, rounding.scale, HasNan(values), outlier,
                            tile, inputs, tile_rows, row, group);
  shifts[0] = all.Shift4();
  shifts[tile_rows] = first.Shift4();
}

}  // namespace

const ActivationFormat& S8Activations() {
  static const S8ActivationFormat format;
  return format;
}

}  // namespace baton::kernels::avx2
