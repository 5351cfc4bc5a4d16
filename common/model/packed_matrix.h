// SPDX-License-Identifier: Apache-2.0
// A linear layer's weights in a backend's format.
#pragma once

#include <cstdint>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "kernels/api/backend.h"

namespace baton::model {

// REQUIRES: a type that weights are packed in (PackedType, convert_rows.h).
kernels::WeightType ToWeightType(checkpoint::TensorType type);

// Values [begin, begin + count) of a tensor as float32.
std::vector<float> Values(const checkpoint::TensorView& tensor, uint64_t begin, uint64_t count);

// Thread safety: immutable.
class PackedMatrix final {
 public:
  PackedMatrix() = default;
  // Lies in `memory`, PackedBytes() long and aligned to 64 bytes, that outlives
  // it and holds what PackPanel has written. Null: nothing but PackPanel works.
  PackedMatrix(const checkpoint::LinearView& view, const kernels::Backend& backend,
               kernels::Precision precision, const std::byte* memory);

  static uint64_t PackedBytes(const checkpoint::LinearView& view, const kernels::Backend& backend,
                              kernels::Precision precision);

  // Writes panel `panel`, panel_bytes() long, to `out`, aligned to 64 bytes.
  void PackPanel(const checkpoint::LinearView& view, uint32_t panel, std::byte* out) const;

  const kernels::LinearFormat& format() const { return *format_; }
  uint32_t outputs() const { return outputs_; }
  uint32_t inputs() const { return inputs_; }
  uint32_t panels() const { return kernels::PanelCount(outputs_); }
  size_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(uint32_t index) const { return data_ + index * panel_bytes_; }
  // Columns of panel `index` that exist, 1 to 32.
  uint32_t columns(uint32_t index) const;
  // [outputs], or empty.
  const std::vector<float>& bias() const { return bias_; }

 private:
  const kernels::LinearFormat* format_ = nullptr;
  uint32_t outputs_ = 0, inputs_ = 0;
  size_t panel_bytes_ = 0;
  const std::byte* data_ = nullptr;
  std::vector<float> bias_;
};

}  // namespace baton::model
