// SPDX-License-Identifier: Apache-2.0
// Stored weights as float32.
#pragma once

#include <cstdint>

#include "common/base/block_quant.h"
#include "common/base/half_float.h"
#include "kernels/api/linear.h"

namespace baton::kernels {

// The layout of a block type; null for plain numbers.
const BlockQuant* QuantOf(WeightType type);

// Writes the `rows.inputs` values of row `row`, exactly as the type defines
// them. REQUIRES: row < rows.rows.
void DequantizeRow(const WeightRows& rows, uint32_t row, float* out);

}  // namespace baton::kernels
