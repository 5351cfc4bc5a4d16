// SPDX-License-Identifier: Apache-2.0
#include "common/model/packed_matrix.h"

#include <algorithm>

#include "common/model/convert_rows.h"

namespace baton::model {
namespace {

using checkpoint::LinearView;
using checkpoint::TensorType;
using kernels::kPanelOutputs;

uint32_t Inputs(const LinearView& view) { return static_cast<uint32_t>(view.tensor->shape[1]); }

const kernels::LinearFormat& FormatFor(const LinearView& view, const kernels::Backend& backend,
                                       kernels::Precision precision) {
  return backend.Linear(ToWeightType(PackedType(view)), precision);
}

}  // namespace

kernels::WeightType ToWeightType(TensorType type) {
  switch (type) {
    case TensorType::kF16:
      return kernels::WeightType::kF16;
    case TensorType::kBf16:
      return kernels::WeightType::kBf16;
    case TensorType::kQ8_0:
      return kernels::WeightType::kQ8_0;
    case TensorType::kQ4_0:
      return kernels::WeightType::kQ4_0;
    case TensorType::kQ4_1:
      return kernels::WeightType::kQ4_1;
    case TensorType::kQ5_0:
      return kernels::WeightType::kQ5_0;
    case TensorType::kQ5_1:
      return kernels::WeightType::kQ5_1;
    case TensorType::kQ4K:
      return kernels::WeightType::kQ4K;
    case TensorType::kQ5K:
      return kernels::WeightType::kQ5K;
    case TensorType::kQ6K:
      return kernels::WeightType::kQ6K;
    case TensorType::kF32:
    case TensorType::kI8Row:  // packed as Q8_0 and Q4_0
    case TensorType::kI4Row:
    case TensorType::kOther:
      break;
  }
  return kernels::WeightType::kF32;
}

std::vector<float> Values(const checkpoint::TensorView& tensor, uint64_t begin, uint64_t count) {
  std::vector<float> values(count);
  checkpoint::DequantizeRange(tensor, begin, values);
  return values;
}

PackedMatrix::PackedMatrix(const LinearView& view, const kernels::Backend& backend,
                           kernels::Precision precision, const std::byte* memory)
    : format_(&FormatFor(view, backend, precision)),
      outputs_(static_cast<uint32_t>(view.rows)),
      inputs_(Inputs(view)),
      panel_bytes_(format_->PanelBytes(inputs_)),
      data_(memory) {
  if (view.bias != nullptr) bias_ = Values(*view.bias, view.row_begin, view.rows);
}

uint64_t PackedMatrix::PackedBytes(const LinearView& view, const kernels::Backend& backend,
                                   kernels::Precision precision) {
  return FormatFor(view, backend, precision).PanelBytes(Inputs(view)) *
         uint64_t{kernels::PanelCount(static_cast<uint32_t>(view.rows))};
}

uint32_t PackedMatrix::columns(uint32_t index) const {
  return std::min(kPanelOutputs, outputs_ - index * kPanelOutputs);
}

void PackedMatrix::PackPanel(const LinearView& view, uint32_t panel, std::byte* out) const {
  const TensorType type = PackedType(view);
  const size_t row_bytes = RowBytes(type, inputs_);
  const uint64_t first = view.row_begin + uint64_t{panel} * kPanelOutputs;
  std::vector<std::byte> converted;
  const std::byte* rows = view.tensor->data.data() + first * row_bytes;
  if (type != view.tensor->type) {
    converted.resize(columns(panel) * row_bytes);
    ConvertRows(view, first, columns(panel), converted.data());
    rows = converted.data();
  }
  format_->PackPanel({.type = ToWeightType(type),
                      .data = rows,
                      .row_bytes = row_bytes,
                      .rows = columns(panel),
                      .inputs = inputs_},
                     out);
}

}  // namespace baton::model
