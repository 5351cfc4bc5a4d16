// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/dequantize.h"

#include <cstring>

namespace baton::kernels {

const BlockQuant* QuantOf(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0:
      return &kQuantQ8_0;
    case WeightType::kQ4_0:
      return &kQuantQ4_0;
    case WeightType::kQ4_1:
      return &kQuantQ4_1;
    case WeightType::kQ5_0:
      return &kQuantQ5_0;
    case WeightType::kQ5_1:
      return &kQuantQ5_1;
    case WeightType::kQ4K:
      return &kQuantQ4K;
    case WeightType::kQ5K:
      return &kQuantQ5K;
    case WeightType::kQ6K:
      return &kQuantQ6K;
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBf16:
      break;
  }
  return nullptr;
}

void DequantizeRow(const WeightRows& rows, uint32_t row, float* out) {
  const std::byte* data = rows.data + row * rows.row_bytes;
  if (const BlockQuant* quant = QuantOf(rows.type)) {
    Dequantize(*quant, data, 0, {out, rows.inputs});
  } else if (rows.type == WeightType::kF32) {
    std::memcpy(out, data, rows.inputs * sizeof(float));
  } else if (rows.type == WeightType::kF16) {
    for (uint32_t i = 0; i < rows.inputs; ++i) out[i] = LoadHalfFloat(data + 2 * i);
  } else {
    for (uint32_t i = 0; i < rows.inputs; ++i) {
      uint16_t bits;
      std::memcpy(&bits, data + 2 * i, sizeof(bits));
      out[i] = Bf16ToFloat(bits);
    }
  }
}

}  // namespace baton::kernels
