// SPDX-License-Identifier: Apache-2.0
// Inputs that the kernel suites share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/api/backend.h"

namespace baton::kernels {

std::vector<float> RandomFloats(size_t count, unsigned seed, float scale = 1);

// A weight matrix as a checkpoint stores it: random values, or random blocks.
struct StoredMatrix {
  WeightType type;
  uint32_t outputs, inputs;
  size_t row_bytes;
  std::vector<std::byte> data;

  WeightRows Panel(uint32_t panel) const;
};
StoredMatrix RandomMatrix(WeightType type, uint32_t outputs, uint32_t inputs, unsigned seed);

std::string WeightTypeName(WeightType type);
inline constexpr WeightType kAllWeightTypes[] = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBf16, WeightType::kQ8_0,
    WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1,
    WeightType::kQ4K,  WeightType::kQ5K,  WeightType::kQ6K};
inline bool IsBlockType(WeightType type) { return type >= WeightType::kQ8_0; }
// Rows hold whole blocks of so many values.
inline uint32_t BlockInputs(WeightType type) {
  return type >= WeightType::kQ4K ? 256 : IsBlockType(type) ? 32 : 1;
}

// Memory aligned to 64 bytes, as kernels require.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t bytes);
  std::byte* data() { return data_; }
  float* floats() { return reinterpret_cast<float*>(data_); }

 private:
  std::vector<std::byte> memory_;
  std::byte* data_;
};

// The product of one tile of `rows` rows, x [rows, inputs]: [rows, outputs].
std::vector<float> MultiplyTile(const LinearFormat& linear, const StoredMatrix& matrix,
                                std::span<const float> x, uint32_t rows);

// The backends of this build that this CPU can run.
std::vector<const Backend*> AvailableBackends();

}  // namespace baton::kernels
