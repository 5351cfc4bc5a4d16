// SPDX-License-Identifier: Apache-2.0
// Matrices of integers with one scale per row, as ChatGLM2-6B's int8 and int4
// checkpoints hold them: NAME.weight and NAME.weight_scale (float16 [rows]).
// value [r, c] = scale [r] * integer [r, c].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::checkpoint {

constexpr bool IsRowType(TensorType type) {
  return type == TensorType::kI8Row || type == TensorType::kI4Row;
}

// Makes one tensor of a row type of every I8 matrix that has a scale of its own
// beside it; with 4 bits a byte holds two of its integers. `bits` is 8 or 4, or
// 0, which changes nothing. INVALID_ARGUMENT, with the tensor, when type or
// shape of a matrix and its scale do not fit each other.
absl::Status JoinRowScales(uint32_t bits, std::vector<TensorView>& tensors);

// Integers [begin, begin + out.size()) of a tensor of a row type.
void ReadRowCodes(const TensorView& tensor, uint64_t begin, std::span<int8_t> out);

// As DequantizeRange; the product is exact in float32.
void DequantizeRowQuant(const TensorView& tensor, uint64_t begin, std::span<float> out);

}  // namespace baton::checkpoint
