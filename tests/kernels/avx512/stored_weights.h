// SPDX-License-Identifier: Apache-2.0
// Random weight matrices as checkpoints store them, with the values that the
// bytes stand for, decoded here from the published layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/api/linear.h"

namespace baton::kernels::testing {

double HalfToDouble(uint16_t bits);
double Bf16ToDouble(uint16_t bits);
uint16_t DoubleToBf16(double value);  // to nearest even; a float32 value

struct StoredWeights {
  WeightRows rows() const;

  WeightType type;
  uint32_t outputs, inputs;
  size_t row_bytes;
  std::vector<std::byte> data;
  std::vector<double> values;  // [outputs, inputs], exactly as stored
};

// Values per stored block; 1 for plain numbers.
uint32_t BlockInputs(WeightType type);

// REQUIRES: whole blocks.
StoredWeights RandomWeights(WeightType type, uint32_t outputs, uint32_t inputs, uint32_t seed);

// Aligned to 64 bytes, as panels and results must be.
template <typename T>
class AlignedArray {
 public:
  explicit AlignedArray(size_t size) : size_(size), storage_(size * sizeof(T) + 64) {}
  T* data() {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    return reinterpret_cast<T*>(storage_.data() + (64 - address % 64) % 64);
  }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  std::vector<std::byte> storage_;
};

}  // namespace baton::kernels::testing
