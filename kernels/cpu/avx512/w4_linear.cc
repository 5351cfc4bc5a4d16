// SPDX-License-Identifier: Apache-2.0
// 4-bit weights times s8 activations.
//
// A panel holds one record per group of 32 inputs:
//   64 B           f16 scale d of each of the 32 outputs
//   64 B           f16 minimum m of each output (affine only)
//   512 B          nibbles: byte [b][c][j] of [4][32][4] holds weight 8 b + j
//                  of output c in its low half, weight 8 b + 4 + j in its high
// A weight is d * (q - 8) (symmetric, Q4_0) or d * q + m (affine, Q4_1). The
// affine product is computed as
//   d * scale * sum (q - 8) a  +  (m + 8 d) * scale * sum a
// with both sums exact; m + 8 d is much smaller than m.
#include <cstring>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/outliers.h"
#include "kernels/cpu/avx512/s8_activations.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::avx512 {
namespace {

constexpr size_t kHalves = kPanelOutputs * 2;  // bytes of 32 f16
constexpr size_t kNibbles = kPanelOutputs * kGroup / 2;

template <bool kAffine>
constexpr size_t kRecord = kHalves + (kAffine ? kHalves : 0) + kNibbles;

// d * (q - 8) of weight k of a group for all outputs: see AddOutliers; kSum has
// m + 8 d.
template <bool kAffine>
BATON_INLINE void LoadWeights(const std::byte* record, uint32_t k, __m512* w0, __m512* w1) {
  const std::byte* nibbles = record + kRecord<kAffine> - kNibbles + k / 8 * 128;
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(k % 4 * 8 + k / 4 % 2 * 4));
  const __m512i low_half = _mm512_set1_epi32(15);
  for (uint32_t half = 0; half < 2; ++half) {
    const __m512i words = _mm512_load_si512(nibbles + half * 64);
    const __m512i q = _mm512_and_si512(_mm512_srl_epi32(words, shift), low_half);
    const __m512 d = LoadHalf(record + half * 32);
    const __m512 zero = _mm512_mul_ps(d, _mm512_set1_ps(-8.0f));
    *(half == 0 ? w0 : w1) = _mm512_fmadd_ps(_mm512_cvtepi32_ps(q), d, zero);
  }
}

// out = panel * tile for R rows: 12 integer and 12 float accumulators at R = 6.
template <int R, bool kAffine>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t groups,
                                            const uint32_t* tile, float* out, Prefetcher prefetch) {
  const std::byte* w = panel;
  const uint32_t* a = tile;
  const __m512i low_half = _mm512_set1_epi8(15);
  __m512 sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (uint32_t g = 0; g < groups; ++g, w += kRecord<kAffine>, a += S8Tile::kWords * R) {
    prefetch.Step();
    __m512i dot[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) dot[r][0] = dot[r][1] = Broadcast(a + S8Tile::kShift4 * R + r);
    const std::byte* nibbles = w + kRecord<kAffine> - kNibbles;
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const __m512i v0 = _mm512_load_si512(nibbles + b * 128);
      const __m512i v1 = _mm512_load_si512(nibbles + b * 128 + 64);
      const __m512i low0 = _mm512_and_si512(v0, low_half);
      const __m512i low1 = _mm512_and_si512(v1, low_half);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i x = Broadcast(a + (2 * b) * R + r);
        dot[r][0] = DotU8S8(dot[r][0], low0, x);
        dot[r][1] = DotU8S8(dot[r][1], low1, x);
      }
      const __m512i high0 = _mm512_and_si512(_mm512_srli_epi16(v0, 4), low_half);
      const __m512i high1 = _mm512_and_si512(_mm512_srli_epi16(v1, 4), low_half);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i x = Broadcast(a + (2 * b + 1) * R + r);
        dot[r][0] = DotU8S8(dot[r][0], high0, x);
        dot[r][1] = DotU8S8(dot[r][1], high1, x);
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
      // m + 8 d by additions, which do not compete with the dot products for
      // their execution port (Zen 4).
      const __m512 d0x2 = _mm512_add_ps(d0, d0), d0x4 = _mm512_add_ps(d0x2, d0x2);
      const __m512 d1x2 = _mm512_add_ps(d1, d1), d1x4 = _mm512_add_ps(d1x2, d1x2);
      const __m512 m0 = _mm512_add_ps(LoadHalf(w + kHalves), _mm512_add_ps(d0x4, d0x4));
      const __m512 m1 = _mm512_add_ps(LoadHalf(w + kHalves + 32), _mm512_add_ps(d1x4, d1x4));
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
class W4Format final : public LinearFormat {
 public:
  std::string_view name() const override {
    return kAffine ? "avx512/w4-affine-a8-g32/2" : "avx512/w4a8-g32/1";
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

 private:
  static constexpr uint32_t Groups(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }
};

// Eight nibbles, one in the low half of each byte, as the word of one output
// in a chunk of the panel: the first four low, the others high.
uint32_t PairNibbles(uint64_t nibbles) {
  return static_cast<uint32_t>(nibbles) | static_cast<uint32_t>(nibbles >> 32) << 4;
}

// A stored block is d (f16), then m (f16, Q4_1 only), then 16 bytes: weight i
// in the low half of byte i, weight 16 + i in its high half.
template <bool kAffine>
void W4Format<kAffine>::PackPanel(const WeightRows& rows, std::byte* out) const {
  constexpr size_t kHeader = kAffine ? 4 : 2;
  constexpr size_t kBlock = kHeader + kGroup / 2;
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
  const uint32_t groups = Groups(rows.inputs);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    for (uint32_t g = 0; g < groups; ++g) {
      const std::byte* block = rows.data + c * rows.row_bytes + g * kBlock;
      std::byte* record = out + g * kRecord<kAffine>;
      std::memcpy(record + c * 2, block, 2);
      if (kAffine) std::memcpy(record + kHalves + c * 2, block + 2, 2);
      uint64_t stored[2];
      std::memcpy(stored, block + kHeader, sizeof(stored));
      const uint32_t words[4] = {PairNibbles(stored[0] & kLow), PairNibbles(stored[1] & kLow),
                                 PairNibbles(stored[0] >> 4 & kLow),
                                 PairNibbles(stored[1] >> 4 & kLow)};
      std::byte* nibbles = record + kRecord<kAffine> - kNibbles + c * 4;
      for (uint32_t b = 0; b < 4; ++b) std::memcpy(nibbles + b * 128, &words[b], 4);
    }
  }
}

}  // namespace

const LinearFormat& W4AffineLinear() {
  static const W4Format<true> format;
  return format;
}
const LinearFormat& W4SymmetricLinear() {
  static const W4Format<false> format;
  return format;
}

}  // namespace baton::kernels::avx512
