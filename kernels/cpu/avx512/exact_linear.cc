// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/avx512/exact.h"
#include "kernels/packing/f32_panels.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr uint32_t kLanes = 16;
constexpr uint32_t kLineBytes = 64;
constexpr uint32_t kUnroll = 4;

// One multiply-add per input and output, over the inputs in order. The 12
// sums of six rows stay in registers; every step prefetches its share of the
// next panel.
template <uint32_t kRows>
void MultiplyRows(const float* panel, uint32_t inputs, const float* x, float* out,
                  const std::byte* next, size_t next_bytes) {
  __m512 sum[kRows][2];
  for (uint32_t r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const uint32_t steps = (inputs + kUnroll - 1) / kUnroll;  // rows are padded to 32
  const size_t step_bytes = (next_bytes / steps + kLineBytes - 1) / kLineBytes * kLineBytes;
  size_t prefetched = 0;
  for (uint32_t step = 0; step < steps; ++step) {
    const size_t until =
        prefetched + step_bytes < next_bytes ? prefetched + step_bytes : next_bytes;
    for (; prefetched < until; prefetched += kLineBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(next) + prefetched, _MM_HINT_T1);
    }
#pragma GCC unroll 4
    for (uint32_t k = 0; k < kUnroll; ++k) {
      const __m512 w0 = _mm512_load_ps(panel), w1 = _mm512_load_ps(panel + kLanes);
      panel += kPanelOutputs;
#pragma GCC unroll 6
      for (uint32_t r = 0; r < kRows; ++r) {
        const __m512 value = _mm512_set1_ps(x[r]);
        sum[r][0] = _mm512_fmadd_ps(value, w0, sum[r][0]);
        sum[r][1] = _mm512_fmadd_ps(value, w1, sum[r][1]);
      }
      x += kRows;
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    _mm512_store_ps(out + r * kPanelOutputs, sum[r][0]);
    _mm512_store_ps(out + r * kPanelOutputs + kLanes, sum[r][1]);
  }
}

class ExactLinearFormat final : public F32Panels {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/f32/1"; }

  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    using Kernel = void(const float*, uint32_t, const float*, float*, const std::byte*, size_t);
    static constexpr Kernel* kKernels[kTileRows] = {MultiplyRows<1>, MultiplyRows<2>,
                                                    MultiplyRows<3>, MultiplyRows<4>,
                                                    MultiplyRows<5>, MultiplyRows<6>};
    kKernels[tile_rows - 1](reinterpret_cast<const float*>(panel), inputs,
                            reinterpret_cast<const float*>(tile), out, next,
                            next == nullptr ? 0 : next_bytes);
  }
};

}  // namespace

const LinearFormat& ExactLinear() {
  static const ExactLinearFormat format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
