// SPDX-License-Identifier: Apache-2.0
// Q4_K, Q5_K and Q6_K weights times s8 activations; panels as in
// kernels/packing/k_panels.h. All integer sums are exact.
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/outliers.h"
#include "kernels/cpu/avx512/s8_activations.h"
#include "kernels/cpu/avx512/simd.h"
#include "kernels/packing/k_panels.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

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
  __m512i high = _mm512_load_si512(codes + kPanelNibbles + kQuad * kHigh / 8 * kPlane);
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
  const std::byte* codes = group + KRecord<kHigh>::kScales;
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
  const __m512 m0 = _mm512_mul_ps(LoadHalf(record + kPanelHalves), LoadU8(group + kPanelOutputs));
  const __m512 m1 =
      _mm512_mul_ps(LoadHalf(record + kPanelHalves + 32), LoadU8(group + kPanelOutputs + 16));
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
  const std::byte* codes = group + KRecord<2>::kScales;
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
  const std::byte* group = KRecord<kHigh>::Group(record, group_index);
  const uint32_t quad = k / 4, byte = k % 4 * 8;
  const __m128i low_shift = _mm_cvtsi32_si128(static_cast<int>(byte + quad % 2 * 4));
  const __m128i high_shift = _mm_cvtsi32_si128(static_cast<int>(byte + quad * kHigh % 8));
  for (uint32_t half = 0; half < 2; ++half) {
    const std::byte* codes = group + KRecord<kHigh>::kScales + half * 64;
    const __m512i low = _mm512_load_si512(codes + quad / 2 * kPlane);
    __m512i q = _mm512_and_si512(_mm512_srl_epi32(low, low_shift), _mm512_set1_epi32(15));
    if constexpr (kHigh > 0) {
      const __m512i high = _mm512_load_si512(codes + kPanelNibbles + quad * kHigh / 8 * kPlane);
      const __m512i bits =
          _mm512_and_si512(_mm512_srl_epi32(high, high_shift), _mm512_set1_epi32((1 << kHigh) - 1));
      q = _mm512_or_si512(q, _mm512_slli_epi32(bits, 4));
    }
    const __m512 d = LoadHalf(record + half * 32);
    __m512 scale;
    if constexpr (KRecord<kHigh>::kAffine) {
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
  using Record = KRecord<kHigh>;
  const uint32_t* a = tile;
  __m512 sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const std::byte* record = panel;
#pragma GCC unroll 1
  for (uint32_t i = 0; i < records; ++i, record += Record::kBytes) {
    const std::byte* group = record + Record::kHead;
#pragma GCC unroll 1
    for (uint32_t g = 0; g < Record::kGroups;
         ++g, group += Record::kGroupBytes, a += S8Tile::kWords * R) {
      prefetch.Step();
      if constexpr (Record::kAffine) {
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
      tile + S8Tile::Outliers(records * Record::kGroups, R), records * Record::kGroups,
      [panel](uint32_t group, uint32_t k, __m512* w0, __m512* w1) {
        LoadWeights<kHigh>(panel + group / Record::kGroups * Record::kBytes,
                           group % Record::kGroups, k, w0, w1);
      },
      out);
}

template <int kHigh>
class KFormat final : public KPanels<kHigh> {
 public:
  std::string_view name() const override {
    return kHigh == 0   ? BATON_AVX512_NAME "/q4k-a8-g32/1"
           : kHigh == 1 ? BATON_AVX512_NAME "/q5k-a8-g32/1"
                        : BATON_AVX512_NAME "/q6k-a8-g16/1";
  }
  const ActivationFormat& activation() const override { return S8Activations(); }
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    using Kernel = void (*)(const std::byte*, uint32_t, const uint32_t*, float*, Prefetcher);
    static constexpr Kernel kKernels[kTileRows] = {MultiplyTile<1, kHigh>, MultiplyTile<2, kHigh>,
                                                   MultiplyTile<3, kHigh>, MultiplyTile<4, kHigh>,
                                                   MultiplyTile<5, kHigh>, MultiplyTile<6, kHigh>};
    const uint32_t records = KRecord<kHigh>::Count(inputs);
    kKernels[tile_rows - 1](panel, records, reinterpret_cast<const uint32_t*>(tile), out,
                            Prefetcher(next, next_bytes, records * KRecord<kHigh>::kGroups));
  }
};

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
