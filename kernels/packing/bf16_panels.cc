// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/bf16_panels.h"

#include <cstring>
#include <vector>

#include "kernels/packing/dequantize.h"
#include "kernels/packing/f32_panels.h"

namespace baton::kernels {

const ActivationFormat& Bf16Panels::activation() const { return F32Activation(); }

size_t Bf16Panels::PanelBytes(uint32_t inputs) const {
  return sizeof(uint16_t) * kPanelOutputs * F32Activation().PaddedInputs(inputs);
}

void Bf16Panels::PackPanel(const WeightRows& rows, std::byte* out) const {
  std::memset(out, 0, PanelBytes(rows.inputs));
  std::vector<float> row(rows.inputs);
  auto* panel = reinterpret_cast<uint16_t*>(out);
  for (uint32_t c = 0; c < rows.rows; ++c) {
    DequantizeRow(rows, c, row.data());
    for (uint32_t k = 0; k < rows.inputs; ++k) {
      panel[(size_t{k / 2} * kPanelOutputs + c) * 2 + k % 2] = FloatToBf16(row[k]);
    }
  }
}

}  // namespace baton::kernels
