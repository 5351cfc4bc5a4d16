// SPDX-License-Identifier: Apache-2.0
// 8-bit weights times s8 activations: symmetric (Q8_0, Q5_0) and affine (Q5_1).
//
// A panel holds one record per group of 32 inputs:
//   64 B     f16 scale d of each of the 32 outputs
//   64 B     f16 minimum m of each output (affine only)
//   1024 B   u8 [8][32][4]: weight 4 w + j of output c, plus 128 if symmetric
// The product of a group is d * scale * sum (u8 - 128) a, or
// d * scale * sum u8 a + m * scale * sum a, the integers exact.
#include <cstring>

#include "common/base/block_quant.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/outliers.h"
#include "kernels/cpu/avx512/s8_activations.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/packing/dequantize.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr size_t kHalves = kPanelOutputs * 2;  // bytes of 32 f16
template <bool kAffine>
constexpr size_t kHeader = kAffine ? 2 * kHalves : kHalves;
template <bool kAffine>
constexpr size_t kRecord = kHeader<kAffine> + kPanelOutputs* kGroup;

constexpr uint32_t Groups(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }

// Weight k of a group for all outputs, without its minimum: see AddOutliers.
template <bool kAffine>
BATON_INLINE void LoadWeights(const std::byte* record, uint32_t k, __m512* w0, __m512* w1) {
  const std::byte* bytes = record + kHeader<kAffine> + k / 4 * 128;
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(k % 4 * 8));
  const __m512i low = _mm512_set1_epi32(255), zero = _mm512_set1_epi32(kAffine ? 0 : 128);
  for (uint32_t half = 0; half < 2; ++half) {
    const __m512i words = _mm512_load_si512(bytes + half * 64);
    const __m512i q = _mm512_sub_epi32(_mm512_and_si512(_mm512_srl_epi32(words, shift), low), zero);
    *(half == 0 ? w0 : w1) = _mm512_mul_ps(_mm512_cvtepi32_ps(q), LoadHalf(record + half * 32));
  }
}

template <int R, bool kAffine>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t groups,
                                            const uint32_t* tile, float* out, Prefetcher prefetch) {
  const std::byte* w = panel;
  const uint32_t* a = tile;
  __m512 sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (uint32_t g = 0; g < groups; ++g, w += kRecord<kAffine>, a += S8Tile::kWords * R) {
    prefetch.Step();
    __m512i dot[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      dot[r][0] = dot[r][1] =
          kAffine ? _mm512_setzero_si512() : Broadcast(a + S8Tile::kShift8 * R + r);
    }
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) {
      const __m512i v0 = _mm512_load_si512(w + kHeader<kAffine> + b * 128);
      const __m512i v1 = _mm512_load_si512(w + kHeader<kAffine> + b * 128 + 64);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i x = Broadcast(a + b * R + r);
        dot[r][0] = DotU8S8(dot[r][0], v0, x);
        dot[r][1] = DotU8S8(dot[r][1], v1, x);
      }
    }
    const __m512 d0 = LoadHalf(w), d1 = LoadHalf(w + 32);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 scale = BroadcastFloat(a + S8Tile::kScale * R + r);
      sum[r][0] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_mul_ps(d0, scale), sum[r][0]);
      sum[r][1] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), _mm512_mul_ps(d1, scale), sum[r][1]);
    }
    if constexpr (kAffine) {
      const __m512 m0 = LoadHalf(w + kHalves), m1 = LoadHalf(w + kHalves + 32);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512 x_sum = BroadcastFloat(a + S8Tile::kSum * R + r);
        sum[r][0] = _mm512_fmadd_ps(m0, x_sum, sum[r][0]);
        sum[r][1] = _mm512_fmadd_ps(m1, x_sum, sum[r][1]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    _mm512_store_ps(out + r * kPanelOutputs, sum[r][0]);
    _mm512_store_ps(out + r * kPanelOutputs + kLanes, sum[r][1]);
  }
  AddOutliers<R>(
      tile + S8Tile::Outliers(groups, R), groups,
      [panel](uint32_t group, uint32_t k, __m512* w0, __m512* w1) {
        LoadWeights<kAffine>(panel + group * kRecord<kAffine>, k, w0, w1);
      },
      out);
}

template <bool kAffine>
class W8Format final : public LinearFormat {
 public:
  std::string_view name() const override {
    return kAffine ? BATON_AVX512_NAME "/w8-affine-a8-g32/1" : BATON_AVX512_NAME "/w8a8-g32/1";
  }
  const ActivationFormat& activation() const override { return S8Activations(); }
  size_t PanelBytes(uint32_t inputs) const override {
    return size_t{Groups(inputs)} * kRecord<kAffine>;
  }
  void PackPanel(const WeightRows& rows, std::byte* out) const override;
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    using Kernel = void (*)(const std::byte*, uint32_t, const uint32_t*, float*, Prefetcher);
    static constexpr Kernel kKernels[kTileRows] = {
        MultiplyTile<1, kAffine>, MultiplyTile<2, kAffine>, MultiplyTile<3, kAffine>,
        MultiplyTile<4, kAffine>, MultiplyTile<5, kAffine>, MultiplyTile<6, kAffine>};
    const uint32_t groups = Groups(inputs);
    kKernels[tile_rows - 1](panel, groups, reinterpret_cast<const uint32_t*>(tile), out,
                            Prefetcher(next, next_bytes, groups));
  }
};

// Scales and minima of the types packed here are f16, so they come back as
// they were.
void StoreHalf(float value, std::byte* to) {
  const uint16_t half = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  std::memcpy(to, &half, sizeof(half));
}

template <bool kAffine>
void W8Format<kAffine>::PackPanel(const WeightRows& rows, std::byte* out) const {
  constexpr uint32_t kZeros = kAffine ? 0 : 0x80808080;  // s8 to u8: plus 128
  const BlockQuant& quant = *QuantOf(rows.type);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    std::byte* record = out;
    for (uint32_t g = 0; g < Groups(rows.inputs); ++g, record += kRecord<kAffine>) {
      QuantGroup group;
      ReadQuantGroup(quant, rows.data + c * rows.row_bytes, g, &group);
      StoreHalf(group.scales[0], record + c * 2);
      if (kAffine) StoreHalf(group.offset, record + kHalves + c * 2);
      for (uint32_t w = 0; w < kGroup / 4; ++w) {
        uint32_t quad;
        std::memcpy(&quad, group.codes + w * 4, 4);
        quad ^= kZeros;
        std::memcpy(record + kHeader<kAffine> + w * 128 + c * 4, &quad, 4);
      }
    }
  }
}

}  // namespace

const LinearFormat& W8Linear() {
  static const W8Format<false> format;
  return format;
}
const LinearFormat& W8AffineLinear() {
  static const W8Format<true> format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
