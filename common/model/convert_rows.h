// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix in another type than the checkpoint's, on their way into a
// backend's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/checkpoint/checkpoint.h"

namespace baton::model {

// The type in which the values of `view` are packed: what convert_to says; for
// row types, which no kernel multiplies, the block type that holds the same
// values (Q8_0, Q4_0); else the tensor's own.
checkpoint::TensorType PackedType(const checkpoint::LinearView& view);

// What the conversion does to the values, for whom equal names mean equal bits;
// empty when there is none.
std::string ConversionName(const checkpoint::LinearView& view);

// Bytes of a row of `inputs` values in `type`: whole blocks.
size_t RowBytes(checkpoint::TensorType type, uint64_t inputs);

// Writes rows [first, first + rows) of the tensor of `view` to `out`, RowBytes
// of PackedType each; values of the last block beyond the row are zeros.
// REQUIRES: PackedType is Q8_0, Q4_0 or BF16, and not the tensor's own type;
// row types become Q8_0 or Q4_0 without loss.
void ConvertRows(const checkpoint::LinearView& view, uint64_t first, uint32_t rows, std::byte* out);

}  // namespace baton::model
