// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/linear.h"

#include "kernels/packing/f32_panels.h"

namespace baton::kernels::ref {
namespace {

class RefLinear final : public F32Panels {
 public:
  std::string_view name() const override { return "ref/f32-f64/1"; }

  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* /*next*/, size_t /*next_bytes*/) const override {
    const auto* weights = reinterpret_cast<const float*>(panel);
    const auto* x = reinterpret_cast<const float*>(tile);
    for (uint32_t r = 0; r < tile_rows; ++r) {
      double sum[kPanelOutputs] = {};
      for (uint32_t k = 0; k < inputs; ++k) {
        const double value = x[size_t{k} * tile_rows + r];
        for (uint32_t c = 0; c < kPanelOutputs; ++c) {
          sum[c] += value * weights[size_t{k} * kPanelOutputs + c];
        }
      }
      for (uint32_t c = 0; c < kPanelOutputs; ++c) {
        out[r * kPanelOutputs + c] = static_cast<float>(sum[c]);
      }
    }
  }
};

}  // namespace

const LinearFormat& Linear() {
  static const RefLinear format;
  return format;
}

}  // namespace baton::kernels::ref
