// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/generic/linear.h"

#include "kernels/cpu/generic/vec.h"
#include "kernels/packing/f32_panels.h"

namespace baton::kernels::generic {
namespace {

// Outputs whose sums of six rows fit into 16 registers.
constexpr uint32_t kColumns = 2 * kLanes;
constexpr uint32_t kLineBytes = 64;

template <uint32_t kRows>
void MultiplyRows(const float* panel, uint32_t inputs, const float* x, float* out) {
  for (uint32_t c = 0; c < kPanelOutputs; c += kColumns) {
    Vec sum[kRows][2] = {};
    for (uint32_t k = 0; k < inputs; ++k) {
      const float* weights = panel + size_t{k} * kPanelOutputs + c;
      const Vec w0 = Load(weights), w1 = Load(weights + kLanes);
      for (uint32_t r = 0; r < kRows; ++r) {
        const Vec value = Splat(x[size_t{k} * kRows + r]);
        sum[r][0] += value * w0;
        sum[r][1] += value * w1;
      }
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      Store(out + r * kPanelOutputs + c, sum[r][0]);
      Store(out + r * kPanelOutputs + c + kLanes, sum[r][1]);
    }
  }
}

class GenericLinear final : public F32Panels {
 public:
  std::string_view name() const override { return "generic/f32/1"; }

  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    if (next != nullptr) {
      for (size_t at = 0; at < next_bytes; at += kLineBytes) __builtin_prefetch(next + at, 0, 2);
    }
    using Kernel = void(const float*, uint32_t, const float*, float*);
    static constexpr Kernel* kKernels[kTileRows] = {MultiplyRows<1>, MultiplyRows<2>,
                                                    MultiplyRows<3>, MultiplyRows<4>,
                                                    MultiplyRows<5>, MultiplyRows<6>};
    kKernels[tile_rows - 1](reinterpret_cast<const float*>(panel), inputs,
                            reinterpret_cast<const float*>(tile), out);
  }
};

}  // namespace

const LinearFormat& Linear() {
  static const GenericLinear format;
  return format;
}

}  // namespace baton::kernels::generic
