// SPDX-License-Identifier: Apache-2.0
// Q4_K, Q5_K and Q6_K weights times s8 activations. Weights keep their bits and
// their two-level scales, so nothing is lost in packing and a weight takes
// 4.625, 5.625 or 6.5625 bits.
//
// A panel holds one record per 256 inputs:
//   64 B            f16 d of each of the 32 outputs
//   64 B            f16 dmin of each output (not Q6_K)
//   8 groups of 32 inputs, each:
//     64 B          Q4_K, Q5_K: u8 [2][32], scale and minimum of each output;
//                   Q6_K: s8 [2][32], scales of the first and second 16 inputs
//     512 B         nibbles as in w4_linear.cc: byte [b][c][j] of [4][32][4]
//                   holds bits 0-3 of weight 8 b + j of output c in its low
//                   half, of weight 8 b + 4 + j in its high
//     n * 128 B     n = 1 (Q5_K) or 2 (Q6_K) higher bits: byte [p][c][j] holds
//                   those of weights 4 q + j of output c for the 8 / n quads q
//                   of its part p, the first lowest
// With codes q, a weight is d * scale * q - dmin * minimum, or for Q6_K
// d * scale * (q - 32). All integer sums are exact.
#include <cstring>

#include "common/base/block_quant.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/outliers.h"
#include "kernels/cpu/avx512/s8_activations.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/packing/dequantize.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr uint32_t kGroups = 8;  // of a record
constexpr size_t kHalves = kPanelOutputs * 2;
constexpr size_t kScales = kPanelOutputs * 2;
constexpr size_t kNibbles = kPanelOutputs * kGroup / 2;
constexpr size_t kPlane = kPanelOutputs * 4;  // a quad of bytes per output

// kHigh: bits of a weight above its nibble.
template <int kHigh>
struct Layout {
  static constexpr bool kAffine = kHigh < 2;
  static constexpr size_t kHead = kAffine ? 2 * kHalves : kHalves;
  static constexpr size_t kGroupBytes = kScales + kNibbles + kHigh * kPlane;
  static constexpr size_t kRecord = kHead + kGroups * kGroupBytes;

  static const std::byte* Group(const std::byte* record, uint32_t group) {
    return record + kHead + group * kGroupBytes;
  }
};

BATON_INLINE __m512 LoadU8(const std::byte* p) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}
BATON_INLINE __m512 LoadS8(const std::byte* p) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

// The codes of quad kQuad of a group for 16 outputs; `codes` are the group's,
// moved by 64 bytes for outputs 16-31.
template <int kHigh, int kQuad>
BATON_INLINE __m512i LoadCodes(const std::byte* codes) {
  const __m512i both = _mm512_load_si512(codes + kQuad / 2 * kPlane);
  const __m512i shifted = kQuad % 2 == 0 ? both : _mm512_srli_epi16(both, 4);
  const __m512i low = _mm512_and_si512(shifted, _mm512_set1_epi8(15));
  if constexpr (kHigh == 0) return low;
  constexpr int kBit = kQuad * kHigh % 8;  // where the quad's bits begin
  __m512i high = _mm512_load_si512(codes + kNibbles + kQuad * kHigh / 8 * kPlane);
  if constexpr (kBit < 4) high = _mm512_slli_epi16(high, 4 - kBit);
  if constexpr (kBit > 4) high = _mm512_srli_epi16(high, kBit - 4);
  // low | (high & mask)
  return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(((1 << kHigh) - 1) << 4), 0xf8);
}

template <int R, int kHigh, int kQuad>
BATON_INLINE void AddQuad(const std::byte* codes, const uint32_t* a, __m512i (&dot)[R][2]) {
  const __m512i q0 = LoadCodes<kHigh, kQuad>(codes), q1 = LoadCodes<kHigh, kQuad>(codes + 64);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m512i x = Broadcast(a + kQuad * R + r);
    dot[r][0] = DotU8S8(dot[r][0], q0, x);
    dot[r][1] = DotU8S8(dot[r][1], q1, x);
  }
}

// sum += dot * (s * scale of the row)
template <int R>
BATON_INLINE void AddScaled(__m512 s0, __m512 s1, const uint32_t* a, const __m512i (&dot)[R][2],
                            __m512 (&sum)[R][2]) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m512 scale = BroadcastFloat(a + S8Tile::kScale * R + r);
    sum[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_mul_ps(s0, scale), sum[r][0]);
    sum[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), _mm512_mul_ps(s1, scale), sum[r][1]);
  }
}

// One group of Q4_K or Q5_K.
template <int R, int kHigh>
BATON_INLINE void AddAffineGroup(const std::byte* record, const std::byte* group, const uint32_t* a,
                                 __m512 (&sum)[R][2]) {
  __m512i dot[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) dot[r][0] = dot[r][1] = _mm512_setzero_si512();
  const std::byte* codes = group + kScales;
  AddQuad<R, kHigh, 0>(codes, a, dot);
  AddQuad<R, kHigh, 1>(codes, a, dot);
  AddQuad<R, kHigh, 2>(codes, a, dot);
  AddQuad<R, kHigh, 3>(codes, a, dot);
  AddQuad<R, kHigh, 4>(codes, a, dot);
  AddQuad<R, kHigh, 5>(codes, a, dot);
  AddQuad<R, kHigh, 6>(codes, a, dot);
  AddQuad<R, kHigh, 7>(codes, a, dot);
  AddScaled<R>(_mm512_mul_ps(LoadHalf(record), LoadU8(group)),
               _mm512_mul_ps(LoadHalf(record + 32), LoadU8(group + 16)), a, dot, sum);
  const __m512 m0 = _mm512_mul_ps(LoadHalf(record + kHalves), LoadU8(group + kPanelOutputs));
  const __m512 m1 =
      _mm512_mul_ps(LoadHalf(record + kHalves + 32), LoadU8(group + kPanelOutputs + 16));
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m512 x_sum = BroadcastFloat(a + S8Tile::kSum * R + r);
    sum[r][0] = _mm512_fnmadd_ps(m0, x_sum, sum[r][0]);
    sum[r][1] = _mm512_fnmadd_ps(m1, x_sum, sum[r][1]);
  }
}

// 16 inputs of a group of Q6_K.
template <int R, int kHalf>
BATON_INLINE void AddHalfGroup(const std::byte* record, const std::byte* group, const uint32_t* a,
                               __m512 (&sum)[R][2]) {
  __m512i dot[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    dot[r][0] = dot[r][1] = Broadcast(a + (S8Tile::kShift6 + kHalf) * R + r);
  }
  const std::byte* codes = group + kScales;
  AddQuad<R, 2, 4 * kHalf>(codes, a, dot);
  AddQuad<R, 2, 4 * kHalf + 1>(codes, a, dot);
  AddQuad<R, 2, 4 * kHalf + 2>(codes, a, dot);
  AddQuad<R, 2, 4 * kHalf + 3>(codes, a, dot);
  const std::byte* scales = group + kHalf * kPanelOutputs;
  AddScaled<R>(_mm512_mul_ps(LoadHalf(record), LoadS8(scales)),
               _mm512_mul_ps(LoadHalf(record + 32), LoadS8(scales + 16)), a, dot, sum);
}

// Weight k of a group for all outputs, without its minimum: see AddOutliers.
template <int kHigh>
BATON_INLINE void LoadWeights(const std::byte* record, uint32_t group_index, uint32_t k, __m512* w0,
                              __m512* w1) {
  const std::byte* group = Layout<kHigh>::Group(record, group_index);
  const uint32_t quad = k / 4, byte = k % 4 * 8;
  const __m128i low_shift = _mm_cvtsi32_si128(static_cast<int>(byte + quad % 2 * 4));
  const __m128i high_shift = _mm_cvtsi32_si128(static_cast<int>(byte + quad * kHigh % 8));
  for (uint32_t half = 0; half < 2; ++half) {
    const std::byte* codes = group + kScales + half * 64;
    const __m512i low = _mm512_load_si512(codes + quad / 2 * kPlane);
    __m512i q = _mm512_and_si512(_mm512_srl_epi32(low, low_shift), _mm512_set1_epi32(15));
    if constexpr (kHigh > 0) {
      const __m512i high = _mm512_load_si512(codes + kNibbles + quad * kHigh / 8 * kPlane);
      const __m512i bits =
          _mm512_and_si512(_mm512_srl_epi32(high, high_shift), _mm512_set1_epi32((1 << kHigh) - 1));
      q = _mm512_or_si512(q, _mm512_slli_epi32(bits, 4));
    }
    const __m512 d = LoadHalf(record + half * 32);
    __m512 scale;
    if constexpr (Layout<kHigh>::kAffine) {
      scale = LoadU8(group + half * 16);
    } else {
      scale = LoadS8(group + k / 16 * kPanelOutputs + half * 16);
      q = _mm512_sub_epi32(q, _mm512_set1_epi32(32));
    }
    *(half == 0 ? w0 : w1) = _mm512_mul_ps(_mm512_cvtepi32_ps(q), _mm512_mul_ps(d, scale));
  }
}

// out = panel * tile for R rows: 12 integer and 12 float accumulators at R = 6.
template <int R, int kHigh>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t records,
                                            const uint32_t* tile, float* out, Prefetcher prefetch) {
  using Panel = Layout<kHigh>;
  const uint32_t* a = tile;
  __m512 sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const std::byte* record = panel;
#pragma GCC unroll 1
  for (uint32_t i = 0; i < records; ++i, record += Panel::kRecord) {
    const std::byte* group = record + Panel::kHead;
#pragma GCC unroll 1
    for (uint32_t g = 0; g < kGroups; ++g, group += Panel::kGroupBytes, a += S8Tile::kWords * R) {
      prefetch.Step();
      if constexpr (Panel::kAffine) {
        AddAffineGroup<R, kHigh>(record, group, a, sum);
      } else {
        AddHalfGroup<R, 0>(record, group, a, sum);
        AddHalfGroup<R, 1>(record, group, a, sum);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    _mm512_store_ps(out + r * kPanelOutputs, sum[r][0]);
    _mm512_store_ps(out + r * kPanelOutputs + kLanes, sum[r][1]);
  }
  AddOutliers<R>(
      tile + S8Tile::Outliers(records * kGroups, R), records * kGroups,
      [panel](uint32_t group, uint32_t k, __m512* w0, __m512* w1) {
        LoadWeights<kHigh>(panel + group / kGroups * Panel::kRecord, group % kGroups, k, w0, w1);
      },
      out);
}

// Puts 32 codes of output c into place, a quad of bytes at a time. Those of Q6_K,
// -32 to 31, become 0 to 63: the sign of six bits flipped.
template <int kHigh>
void PackCodes(const int8_t* q, uint32_t c, std::byte* codes) {
  constexpr uint32_t kFlip = Layout<kHigh>::kAffine ? 0 : 0x20202020;
  uint32_t low[4] = {}, high[2] = {};
  for (uint32_t quad = 0; quad < kGroup / 4; ++quad) {
    uint32_t word;
    std::memcpy(&word, q + quad * 4, sizeof(word));
    word = (word ^ kFlip) & 0x3f3f3f3f;
    low[quad / 2] |= (word & 0x0f0f0f0f) << (quad % 2 * 4);
    if constexpr (kHigh > 0) {
      high[quad * kHigh / 8] |= (word >> 4 & 0x0f0f0f0f) << (quad * kHigh % 8);
    }
  }
  for (uint32_t b = 0; b < 4; ++b) std::memcpy(codes + b * kPlane + c * 4, &low[b], 4);
  for (uint32_t p = 0; p < kHigh; ++p) {
    std::memcpy(codes + kNibbles + p * kPlane + c * 4, &high[p], 4);
  }
}

template <int kHigh>
class KFormat final : public LinearFormat {
 public:
  std::string_view name() const override {
    return kHigh == 0   ? BATON_AVX512_NAME "/q4k-a8-g32/1"
           : kHigh == 1 ? BATON_AVX512_NAME "/q5k-a8-g32/1"
                        : BATON_AVX512_NAME "/q6k-a8-g16/1";
  }
  const ActivationFormat& activation() const override { return S8Activations(); }
  size_t PanelBytes(uint32_t inputs) const override {
    return size_t{Records(inputs)} * Layout<kHigh>::kRecord;
  }
  void PackPanel(const WeightRows& rows, std::byte* out) const override;
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    using Kernel = void (*)(const std::byte*, uint32_t, const uint32_t*, float*, Prefetcher);
    static constexpr Kernel kKernels[kTileRows] = {MultiplyTile<1, kHigh>, MultiplyTile<2, kHigh>,
                                                   MultiplyTile<3, kHigh>, MultiplyTile<4, kHigh>,
                                                   MultiplyTile<5, kHigh>, MultiplyTile<6, kHigh>};
    const uint32_t records = Records(inputs);
    kKernels[tile_rows - 1](panel, records, reinterpret_cast<const uint32_t*>(tile), out,
                            Prefetcher(next, next_bytes, records * kGroups));
  }

 private:
  static constexpr uint32_t Records(uint32_t inputs) { return inputs / (kGroups * kGroup); }
  // The scales of output c, from its stored block.
  static void PackScales(const std::byte* block, uint32_t c, std::byte* record);
};

template <int kHigh>
void KFormat<kHigh>::PackScales(const std::byte* block, uint32_t c, std::byte* record) {
  if constexpr (Layout<kHigh>::kAffine) {
    std::memcpy(record + c * 2, block + kKScaleAt, 2);
    std::memcpy(record + kHalves + c * 2, block + kKMinimumAt, 2);
  } else {
    std::memcpy(record + c * 2, block + kQ6KScaleAt, 2);
  }
  const KScales k = UnpackKScales(block + kKPackedAt);  // of no meaning for Q6_K
  for (uint32_t g = 0; g < kGroups; ++g) {
    std::byte* scales = record + Layout<kHigh>::kHead + g * Layout<kHigh>::kGroupBytes + c;
    if constexpr (Layout<kHigh>::kAffine) {
      scales[0] = static_cast<std::byte>(k.scales[g]);
      scales[kPanelOutputs] = static_cast<std::byte>(k.minima[g]);
    } else {
      scales[0] = block[kQ6KScalesAt + 2 * g];
      scales[kPanelOutputs] = block[kQ6KScalesAt + 2 * g + 1];
    }
  }
}

template <int kHigh>
void KFormat<kHigh>::PackPanel(const WeightRows& rows, std::byte* out) const {
  const BlockQuant& quant = *QuantOf(rows.type);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    const std::byte* block = rows.data + c * rows.row_bytes;
    std::byte* record = out;
    for (uint32_t i = 0; i < Records(rows.inputs); ++i) {
      PackScales(block, c, record);
      for (uint32_t g = 0; g < kGroups; ++g) {
        QuantGroup group;
        quant.read(block, g, &group);
        PackCodes<kHigh>(group.codes, c,
                         record + Layout<kHigh>::kHead + g * Layout<kHigh>::kGroupBytes + kScales);
      }
      block += quant.bytes;
      record += Layout<kHigh>::kRecord;
    }
  }
}

}  // namespace

const LinearFormat& Q4KLinear() {
  static const KFormat<0> format;
  return format;
}
const LinearFormat& Q5KLinear() {
  static const KFormat<1> format;
  return format;
}
const LinearFormat& Q6KLinear() {
  static const KFormat<2> format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
