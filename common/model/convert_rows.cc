// SPDX-License-Identifier: Apache-2.0
#include "common/model/convert_rows.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/half_float.h"
#include "common/base/quantize.h"
#include "common/checkpoint/row_quant.h"

namespace baton::model {
namespace {

using checkpoint::LinearView;
using checkpoint::TensorType;
using checkpoint::TensorView;

// Changes with any change of the blocks that quantize.h makes.
constexpr int kQuantizerVersion = 1;

uint64_t Groups(uint64_t inputs) { return (inputs + kQuantGroup - 1) / kQuantGroup; }

// The same scale in every block of the row.
void StoreRowCodes(const TensorView& tensor, uint64_t row, TensorType to, std::byte* out) {
  const uint64_t inputs = tensor.shape[1];
  std::vector<int8_t> codes(Groups(inputs) * kQuantGroup);
  checkpoint::ReadRowCodes(tensor, row * inputs, std::span(codes).first(inputs));
  uint16_t scale;
  std::memcpy(&scale, tensor.row_scales.data() + row * sizeof scale, sizeof scale);
  const auto store = to == TensorType::kQ8_0 ? StoreQ8_0 : StoreQ4_0;
  const uint32_t block = checkpoint::TensorBlock(to).bytes;
  for (uint64_t g = 0; g < Groups(inputs); ++g) {
    store(scale, codes.data() + g * kQuantGroup, out + g * block);
  }
}

void QuantizeRow(const TensorView& tensor, uint64_t row, TensorType to, std::byte* out) {
  const uint64_t inputs = tensor.shape[1];
  std::vector<float> values(Groups(inputs) * kQuantGroup);
  checkpoint::DequantizeRange(tensor, row * inputs, std::span(values).first(inputs));
  const auto quantize = to == TensorType::kQ8_0 ? QuantizeQ8_0 : QuantizeQ4_0;
  const uint32_t block = checkpoint::TensorBlock(to).bytes;
  for (uint64_t g = 0; g < Groups(inputs); ++g) {
    quantize(values.data() + g * kQuantGroup, out + g * block);
  }
}

void RoundRow(const TensorView& tensor, uint64_t row, std::byte* out) {
  std::vector<float> values(tensor.shape[1]);
  checkpoint::DequantizeRange(tensor, row * values.size(), values);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = FloatToBf16(values[i]);
    std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

TensorType PackedType(const LinearView& view) {
  if (view.convert_to.has_value()) return *view.convert_to;
  if (view.tensor->type == TensorType::kI8Row) return TensorType::kQ8_0;
  if (view.tensor->type == TensorType::kI4Row) return TensorType::kQ4_0;
  return view.tensor->type;
}

std::string ConversionName(const LinearView& view) {
  if (!view.convert_to.has_value()) return "";
  return absl::StrCat(std::string(TensorTypeName(view.tensor->type)), " to ",
                      std::string(TensorTypeName(*view.convert_to)), "/", kQuantizerVersion);
}

size_t RowBytes(TensorType type, uint64_t inputs) {
  const checkpoint::BlockShape block = checkpoint::TensorBlock(type);
  return (inputs + block.values - 1) / block.values * block.bytes;
}

void ConvertRows(const LinearView& view, uint64_t first, uint32_t rows, std::byte* out) {
  const TensorView& tensor = *view.tensor;
  const TensorType to = PackedType(view);
  const size_t row_bytes = RowBytes(to, tensor.shape[1]);
  for (uint64_t row = first; row < first + rows; ++row, out += row_bytes) {
    if (checkpoint::IsRowType(tensor.type)) {
      StoreRowCodes(tensor, row, to, out);
    } else if (to == TensorType::kBf16) {
      RoundRow(tensor, row, out);
    } else {
      QuantizeRow(tensor, row, to, out);
    }
  }
}

}  // namespace baton::model
