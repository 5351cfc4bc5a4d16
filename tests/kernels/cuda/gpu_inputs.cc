// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda/gpu_inputs.h"

#include <array>

#include "common/base/half_float.h"

namespace baton::gpu {

std::vector<float> ThroughBf16(std::span<const float> values) {
  std::vector<float> rounded;
  for (float value : values) rounded.push_back(Bf16ToFloat(FloatToBf16(value)));
  return rounded;
}

std::vector<uint16_t> PackActivations(std::span<const float> x, uint32_t rows, uint32_t inputs) {
  std::vector<uint16_t> packed(ActivationBytes(rows, inputs) / 2, 0xffff);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < inputs; ++i) {
      packed[ActivationIndex(row, i, GroupsOf(inputs))] = FloatToBf16(x[size_t{row} * inputs + i]);
    }
  }
  return packed;
}

std::vector<float> ActivationRow(std::span<const uint16_t> packed, uint32_t row, uint32_t inputs) {
  std::vector<float> values(inputs);
  for (uint32_t i = 0; i < inputs; ++i) {
    values[i] = Bf16ToFloat(packed[ActivationIndex(row, i, GroupsOf(inputs))]);
  }
  return values;
}

std::vector<std::byte> PackMatrix(const kernels::StoredMatrix& matrix) {
  const WeightFormat format = FormatOf(matrix.type);
  const size_t tile_bytes = size_t{GroupsOf(matrix.inputs)} * RecordBytes(format);
  std::vector<std::byte> packed(WeightBytes(format, matrix.outputs, matrix.inputs));
  for (uint32_t tile = 0; tile < TilesOf(matrix.outputs); ++tile) {
    std::array<StoredRow, kTileOutputs> rows{};
    for (uint32_t i = 0; i < kTileOutputs; ++i) {
      const uint32_t output = tile * kTileOutputs + i;
      if (output < matrix.outputs) rows[i] = &matrix.data[output * matrix.row_bytes];
    }
    PackTile(matrix.type, rows, matrix.inputs,
             std::span(packed).subspan(tile * tile_bytes, tile_bytes));
  }
  return packed;
}

}  // namespace baton::gpu
