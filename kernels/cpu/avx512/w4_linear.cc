// SPDX-License-Identifier: Apache-2.0
// 4-bit weights times s8 activations.
//
// A panel holds one record per group of 32 inputs:
//   64 B           f16 scale d of each of the 32 outputs
//   512 B          nibbles: byte [b][c][j] of [4][32][4] holds weight 8 b + j
//                  of output c in its low half, weight 8 b + 4 + j in its high
// and, affine only, behind every two of them (and the last of an odd number)
//   128 B          m + 8 d of both groups for each output, a pair of bf16
// A weight is d * (q - 8) (symmetric, Q4_0) or d * q + m (affine, Q4_1). The
// affine product is computed as
//   d * scale * sum (q - 8) a  +  (m + 8 d) * scale * sum a
// with both sums exact. m + 8 d is much smaller than m, so that bf16 does for
// it; one instruction then adds the second term of two groups.
#include <algorithm>
#include <cstring>

#include "common/base/half_float.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/outliers.h"
#include "kernels/cpu/avx512/s8_activations.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr size_t kHalves = kPanelOutputs * 2;  // bytes of 32 f16
constexpr size_t kRecord = kHalves + kPanelOutputs * kGroup / 2;
constexpr size_t kMinima = kPanelOutputs * 4;

// Where the record of a group begins.
template <bool kAffine>
constexpr size_t RecordAt(uint32_t group) {
  return group * kRecord + (kAffine ? group / 2 * kMinima : 0);
}

// Shifts that bring weight k % 8 of a word of nibbles to its low end.
struct NibbleShifts {
  alignas(64) uint32_t lanes[8][kLanes];
};
constexpr NibbleShifts MakeNibbleShifts() {
  NibbleShifts shifts = {};
  for (uint32_t k = 0; k < 8; ++k) {
    for (uint32_t& lane : shifts.lanes[k]) lane = k % 4 * 8 + k / 4 * 4;
  }
  return shifts;
}
constexpr NibbleShifts kNibbleShifts = MakeNibbleShifts();

// d * (q - 8) of weight k of a group for all outputs: see AddOutliers; kSum has
// m + 8 d. The permutation looks at the low four bits of a lane alone, so it takes
// the code out, moves its zero and converts it in one instruction.
BATON_INLINE void LoadWeights(const std::byte* record, uint32_t k, __m512* w0, __m512* w1) {
  const std::byte* nibbles = record + kHalves + k / 8 * 128;
  const __m512i shift = _mm512_load_si512(kNibbleShifts.lanes[k % 8]);
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  for (uint32_t half = 0; half < 2; ++half) {
    const __m512i words = _mm512_load_si512(nibbles + half * 64);
    const __m512 q = _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shift), values);
    *(half == 0 ? w0 : w1) = _mm512_mul_ps(q, LoadHalf(record + half * 32));
  }
}

// Adds the product of one group to `sum`.
template <int R>
BATON_INLINE void AddGroup(const std::byte* record, const uint32_t* a, __m512 (&sum)[R][2]) {
  const __m512i low_half = _mm512_set1_epi8(15);
  __m512i dot[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) dot[r][0] = dot[r][1] = Broadcast(a + S8Tile::kShift4 * R + r);
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    const __m512i v0 = _mm512_load_si512(record + kHalves + b * 128);
    const __m512i v1 = _mm512_load_si512(record + kHalves + b * 128 + 64);
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
  const __m512 d0 = LoadHalf(record), d1 = LoadHalf(record + 32);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m512 scale = BroadcastFloat(a + S8Tile::kScale * R + r);
    sum[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_mul_ps(d0, scale), sum[r][0]);
    sum[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), _mm512_mul_ps(d1, scale), sum[r][1]);
  }
}

// out = panel * tile for R rows: 12 integer and 12 float accumulators at R = 6.
template <int R, bool kAffine>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t groups,
                                            const uint32_t* tile, float* out, Prefetcher prefetch) {
  const std::byte* w = panel;
  const uint32_t* a = tile;
  const uint32_t* x_sums = tile + S8Tile::SumPairs(groups, R);
  __m512 sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (uint32_t g = 0; g < groups;) {
    const uint32_t end = g + (kAffine ? 2 : 1);
#pragma GCC unroll 1
    for (; g < end && g < groups; ++g, w += kRecord, a += S8Tile::kWords * R) {
      prefetch.Step();
      AddGroup<R>(w, a, sum);
    }
    if constexpr (kAffine) {
      const __m512i m0 = _mm512_load_si512(w), m1 = _mm512_load_si512(w + 64);
      w += kMinima;
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i x_sum = Broadcast(x_sums + r);
        sum[r][0] = DotBf16(sum[r][0], m0, x_sum);
        sum[r][1] = DotBf16(sum[r][1], m1, x_sum);
      }
      x_sums += R;
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
        LoadWeights(panel + RecordAt<kAffine>(group), k, w0, w1);
      },
      out);
}

template <bool kAffine>
class W4Format final : public LinearFormat {
 public:
  std::string_view name() const override {
    return kAffine ? BATON_AVX512_NAME "/w4-affine-a8-g32/3" : BATON_AVX512_NAME "/w4a8-g32/1";
  }
  const ActivationFormat& activation() const override { return S8Activations(); }
  size_t PanelBytes(uint32_t inputs) const override {
    const uint32_t groups = Groups(inputs);
    return groups * kRecord + (kAffine ? (groups + 1) / 2 * kMinima : 0);
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
      std::byte* record = out + RecordAt<kAffine>(g);
      std::memcpy(record + c * 2, block, 2);
      if (kAffine) {
        const uint32_t even = g / 2 * 2;
        std::byte* minima = out + RecordAt<true>(even) + std::min(2u, groups - even) * kRecord;
        uint16_t d, m;
        std::memcpy(&d, block, sizeof(d));
        std::memcpy(&m, block + 2, sizeof(m));
        const uint16_t minimum = FloatToBf16(HalfToFloat(m) + 8 * HalfToFloat(d));
        std::memcpy(minima + c * 4 + g % 2 * 2, &minimum, sizeof(minimum));
      }
      uint64_t stored[2];
      std::memcpy(stored, block + kHeader, sizeof(stored));
      const uint32_t words[4] = {PairNibbles(stored[0] & kLow), PairNibbles(stored[1] & kLow),
                                 PairNibbles(stored[0] >> 4 & kLow),
                                 PairNibbles(stored[1] >> 4 & kLow)};
      std::byte* nibbles = record + kHalves + c * 4;
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

}  // namespace baton::kernels::BATON_AVX512
