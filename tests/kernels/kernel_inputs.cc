// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/kernel_inputs.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace baton::kernels {
namespace {

constexpr uint16_t kHalfOne = 0x3c00;

size_t RowBytes(WeightType type, uint32_t inputs) {
  switch (type) {
    case WeightType::kF32:
      return size_t{inputs} * 4;
    case WeightType::kF16:
    case WeightType::kBf16:
      return size_t{inputs} * 2;
    case WeightType::kQ8_0:
      return size_t{inputs} / kGroup * 34;
    case WeightType::kQ4_0:
      return size_t{inputs} / kGroup * 18;
    case WeightType::kQ4_1:
      return size_t{inputs} / kGroup * 20;
    case WeightType::kQ5_0:
      return size_t{inputs} / kGroup * 22;
    case WeightType::kQ5_1:
      return size_t{inputs} / kGroup * 24;
    case WeightType::kQ4K:
      return size_t{inputs} / 256 * 144;
    case WeightType::kQ5K:
      return size_t{inputs} / 256 * 176;
    case WeightType::kQ6K:
      return size_t{inputs} / 256 * 210;
  }
  return 0;
}

// A positive or negative binary16 between 2^-7 and 2^-5.
uint16_t RandomHalf(std::mt19937& generator) {
  const uint32_t random = static_cast<uint32_t>(generator());
  return static_cast<uint16_t>((random & 0x8000) | (kHalfOne - 0x1c00 + (random & 0x7ff)));
}

void FillBlocks(StoredMatrix& matrix, std::mt19937& generator) {
  const WeightType type = matrix.type;
  const bool symmetric = type == WeightType::kQ8_0 || type == WeightType::kQ4_0 ||
                         type == WeightType::kQ5_0 || type == WeightType::kQ6K;
  const size_t halves = symmetric ? 1 : 2;
  const size_t first = type == WeightType::kQ6K ? 208 : 0;
  const size_t block = RowBytes(type, BlockInputs(type));
  for (std::byte& byte : matrix.data) byte = static_cast<std::byte>(generator());
  for (size_t at = 0; at < matrix.data.size(); at += block) {
    for (size_t i = 0; i < halves; ++i) {
      const uint16_t half = RandomHalf(generator);
      std::memcpy(&matrix.data[at + first + 2 * i], &half, sizeof(half));
    }
  }
}

}  // namespace

std::vector<float> RandomFloats(size_t count, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

WeightRows StoredMatrix::Panel(uint32_t panel) const {
  const uint32_t first = panel * kPanelOutputs;
  return {.type = type,
          .data = data.data() + first * row_bytes,
          .row_bytes = row_bytes,
          .rows = std::min(kPanelOutputs, outputs - first),
          .inputs = inputs};
}

StoredMatrix RandomMatrix(WeightType type, uint32_t outputs, uint32_t inputs, unsigned seed) {
  const size_t row_bytes = RowBytes(type, inputs);
  StoredMatrix matrix{type, outputs, inputs, row_bytes,
                      std::vector<std::byte>(outputs * row_bytes)};
  std::mt19937 generator(seed);
  if (IsBlockType(type)) {
    FillBlocks(matrix, generator);
  } else if (type == WeightType::kF32) {
    const auto values = RandomFloats(size_t{outputs} * inputs, seed);
    std::memcpy(matrix.data.data(), values.data(), matrix.data.size());
  } else {
    for (size_t at = 0; at < matrix.data.size(); at += 2) {
      const uint16_t half = RandomHalf(generator);  // as bf16: tiny, but normal
      std::memcpy(&matrix.data[at], &half, sizeof(half));
    }
  }
  return matrix;
}

std::string WeightTypeName(WeightType type) {
  static constexpr const char* kNames[] = {"F32",  "F16",  "BF16", "Q8_0", "Q4_0", "Q4_1",
                                           "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
  return kNames[static_cast<size_t>(type)];
}

AlignedBytes::AlignedBytes(size_t bytes) : memory_(bytes + 64) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  data_ = memory_.data() + (64 - address % 64) % 64;
}

std::vector<float> MultiplyTile(const LinearFormat& linear, const StoredMatrix& matrix,
                                std::span<const float> x, uint32_t rows) {
  const ActivationFormat& activation = linear.activation();
  AlignedBytes tile(activation.TileBytes(matrix.inputs));
  const uint32_t padded = activation.PaddedInputs(matrix.inputs);
  for (uint32_t r = 0; r < rows; ++r) {
    std::vector<float> row(padded);
    std::copy_n(&x[size_t{r} * matrix.inputs], matrix.inputs, row.begin());
    for (uint32_t g = 0; g < padded / kGroup; ++g) {
      activation.PackGroup(&row[g * kGroup], tile.data(), matrix.inputs, rows, r, g);
    }
  }
  std::vector<float> out(size_t{rows} * matrix.outputs);
  AlignedBytes panel(linear.PanelBytes(matrix.inputs));
  AlignedBytes result(sizeof(float) * kTileRows * kPanelOutputs);
  for (uint32_t p = 0; p < PanelCount(matrix.outputs); ++p) {
    const WeightRows weights = matrix.Panel(p);
    linear.PackPanel(weights, panel.data());
    linear.Multiply(panel.data(), matrix.inputs, tile.data(), rows, result.floats(), panel.data(),
                    linear.PanelBytes(matrix.inputs));
    for (uint32_t r = 0; r < rows; ++r) {
      std::copy_n(result.floats() + r * kPanelOutputs, weights.rows,
                  &out[size_t{r} * matrix.outputs + p * kPanelOutputs]);
    }
  }
  return out;
}

std::vector<const Backend*> AvailableBackends() {
  std::vector<const Backend*> available;
  for (const Backend* backend : Backends()) {
    if (backend->available()) available.push_back(backend);
  }
  return available;
}

}  // namespace baton::kernels
