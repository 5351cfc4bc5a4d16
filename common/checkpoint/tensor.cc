// SPDX-License-Identifier: Apache-2.0
// Tensor types and their values.
#include <cassert>
#include <cstring>

#include "common/base/block_quant.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/row_quant.h"

namespace baton::checkpoint {
namespace {

// Null for plain numbers.
const BlockQuant* QuantOf(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
      return &kQuantQ8_0;
    case TensorType::kQ4_0:
      return &kQuantQ4_0;
    case TensorType::kQ4_1:
      return &kQuantQ4_1;
    case TensorType::kQ5_0:
      return &kQuantQ5_0;
    case TensorType::kQ5_1:
      return &kQuantQ5_1;
    case TensorType::kQ4K:
      return &kQuantQ4K;
    case TensorType::kQ5K:
      return &kQuantQ5K;
    case TensorType::kQ6K:
      return &kQuantQ6K;
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBf16:
    case TensorType::kI8Row:
    case TensorType::kI4Row:
    case TensorType::kOther:
      break;
  }
  return nullptr;
}

float LoadBf16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return Bf16ToFloat(bits);
}

}  // namespace

std::string_view TensorTypeName(TensorType type) {
  if (const BlockQuant* quant = QuantOf(type)) return quant->name;
  if (type == TensorType::kF32) return "F32";
  if (type == TensorType::kF16) return "F16";
  if (type == TensorType::kBf16) return "BF16";
  if (type == TensorType::kI8Row) return "I8_ROW";
  if (type == TensorType::kI4Row) return "I4_ROW";
  return "other";
}

BlockShape TensorBlock(TensorType type) {
  assert(type != TensorType::kOther);
  if (const BlockQuant* quant = QuantOf(type)) return {quant->values, quant->bytes};
  if (type == TensorType::kI8Row) return {1, 1};
  if (type == TensorType::kI4Row) return {2, 1};
  return {1, type == TensorType::kF32 ? 4u : 2u};
}

void DequantizeRange(const TensorView& tensor, uint64_t begin, std::span<float> out) {
  const std::byte* data = tensor.data.data();
  if (const BlockQuant* quant = QuantOf(tensor.type)) return Dequantize(*quant, data, begin, out);
  if (IsRowType(tensor.type)) return DequantizeRowQuant(tensor, begin, out);
  data += begin * TensorBlock(tensor.type).bytes;
  if (tensor.type == TensorType::kF32) {
    std::memcpy(out.data(), data, out.size_bytes());
  } else {
    const auto load = tensor.type == TensorType::kF16 ? LoadHalfFloat : LoadBf16;
    for (size_t i = 0; i < out.size(); ++i) out[i] = load(data + 2 * i);
  }
}

}  // namespace baton::checkpoint
