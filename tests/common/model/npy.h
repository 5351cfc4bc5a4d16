// SPDX-License-Identifier: Apache-2.0
// Reads the .npy files of reference data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace baton::testing {

// A float32 array in C order.
struct Npy {
  std::vector<uint64_t> shape;
  std::vector<float> values;

  // Row `index` of the last dimension.
  std::span<const float> Row(uint64_t index) const {
    return {values.data() + index * shape.back(), shape.back()};
  }
  uint64_t rows() const { return values.size() / shape.back(); }
};

// Adds a test failure and returns an empty array when the file is no such one.
Npy ReadNpy(const std::string& path);

}  // namespace baton::testing
