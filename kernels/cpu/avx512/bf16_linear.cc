// SPDX-License-Identifier: Apache-2.0
// bf16 weights times bf16 activations, accumulated in float32.
//
// A panel is pairs of bf16 [inputs / 2][32 outputs][2], inputs padded with
// zeros to a multiple of 32. F32 and F16 weights are rounded to nearest even;
// denormals are zero in every bf16 instruction.
#include <cstring>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr size_t kPairBytes = kPanelOutputs * 4;
constexpr uint32_t kGroupPairs = kGroup / 2;

constexpr uint32_t Groups(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }

template <int R>
__attribute__((noinline)) void MultiplyTile(const std::byte* w, uint32_t groups, const uint32_t* a,
                                            float* out, Prefetcher prefetch) {
  __m512 sum[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (uint32_t g = 0; g < groups; ++g) {
    prefetch.Step();
#pragma GCC unroll 4
    for (uint32_t p = 0; p < kGroupPairs; ++p, w += kPairBytes, a += R) {
      const __m512i v0 = _mm512_load_si512(w);
      const __m512i v1 = _mm512_load_si512(w + 64);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m512i x = Broadcast(a + r);
        sum[r][0] = DotBf16(sum[r][0], v0, x);
        sum[r][1] = DotBf16(sum[r][1], v1, x);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    _mm512_store_ps(out + r * kPanelOutputs, sum[r][0]);
    _mm512_store_ps(out + r * kPanelOutputs + kLanes, sum[r][1]);
  }
}

// 32 weights from index `first` of a stored row as bf16; zeros beyond `inputs`.
__m512i LoadGroup(WeightType type, const std::byte* row, uint32_t first, uint32_t inputs) {
  const uint32_t count = inputs - first < kGroup ? inputs - first : kGroup;
  const auto mask = static_cast<__mmask32>(count == kGroup ? ~0u : (1u << count) - 1);
  if (type == WeightType::kBf16) return _mm512_maskz_loadu_epi16(mask, row + first * size_t{2});
  __m512 low, high;
  if (type == WeightType::kF16) {
    const __m512i halves = _mm512_maskz_loadu_epi16(mask, row + first * size_t{2});
    low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
  } else {
    low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), row + first * size_t{4});
    high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16),
                                 row + (first + kLanes) * size_t{4});
  }
  return ToBf16(low, high);
}

class Bf16Format final : public LinearFormat {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/bf16/1"; }
  const ActivationFormat& activation() const override { return Bf16Activations(); }
  size_t PanelBytes(uint32_t inputs) const override {
    return size_t{Groups(inputs)} * kGroupPairs * kPairBytes;
  }
  void PackPanel(const WeightRows& rows, std::byte* out) const override;
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    using Kernel = void (*)(const std::byte*, uint32_t, const uint32_t*, float*, Prefetcher);
    static constexpr Kernel kKernels[kTileRows] = {MultiplyTile<1>, MultiplyTile<2>,
                                                   MultiplyTile<3>, MultiplyTile<4>,
                                                   MultiplyTile<5>, MultiplyTile<6>};
    const uint32_t groups = Groups(inputs);
    kKernels[tile_rows - 1](panel, groups, reinterpret_cast<const uint32_t*>(tile), out,
                            Prefetcher(next, next_bytes, groups));
  }
};

void Bf16Format::PackPanel(const WeightRows& rows, std::byte* out) const {
  const uint32_t groups = Groups(rows.inputs);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    const std::byte* row = rows.data + c * rows.row_bytes;
    for (uint32_t g = 0; g < groups; ++g) {
      alignas(64) uint32_t pairs[kGroupPairs];
      _mm512_store_si512(pairs, LoadGroup(rows.type, row, g * kGroup, rows.inputs));
      for (uint32_t p = 0; p < kGroupPairs; ++p) {
        std::memcpy(out + (g * kGroupPairs + p) * kPairBytes + c * 4, &pairs[p], 4);
      }
    }
  }
}

}  // namespace

const LinearFormat& Bf16Linear() {
  static const Bf16Format format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
