// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/f32_panels.h"

#include <algorithm>
#include <vector>

#include "kernels/packing/dequantize.h"

namespace baton::kernels {
namespace {

uint32_t RoundUpToGroup(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup * kGroup; }

class F32ActivationFormat final : public ActivationFormat {
 public:
  std::string_view name() const override { return "f32"; }
  uint32_t PaddedInputs(uint32_t inputs) const override { return RoundUpToGroup(inputs); }
  size_t TileBytes(uint32_t inputs) const override {
    return sizeof(float) * kTileRows * RoundUpToGroup(inputs);
  }
  void PackGroup(const float* x, std::byte* tile, uint32_t /*inputs*/, uint32_t tile_rows,
                 uint32_t row, uint32_t group) const override {
    float* out = reinterpret_cast<float*>(tile) + size_t{group} * kGroup * tile_rows + row;
    for (uint32_t i = 0; i < kGroup; ++i) out[i * tile_rows] = x[i];
  }
};

}  // namespace

const ActivationFormat& F32Activation() {
  static const F32ActivationFormat format;
  return format;
}

const ActivationFormat& F32Panels::activation() const { return F32Activation(); }

size_t F32Panels::PanelBytes(uint32_t inputs) const {
  return sizeof(float) * kPanelOutputs * RoundUpToGroup(inputs);
}

void F32Panels::PackPanel(const WeightRows& rows, std::byte* out) const {
  const uint32_t padded = RoundUpToGroup(rows.inputs);
  std::vector<float> row(padded);
  float* panel = reinterpret_cast<float*>(out);
  for (uint32_t c = 0; c < kPanelOutputs; ++c) {
    if (c < rows.rows) {
      DequantizeRow(rows, c, row.data());
    } else {
      std::fill(row.begin(), row.end(), 0.0f);
    }
    for (uint32_t k = 0; k < padded; ++k) panel[size_t{k} * kPanelOutputs + c] = row[k];
  }
}

}  // namespace baton::kernels
