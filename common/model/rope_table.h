// SPDX-License-Identifier: Apache-2.0
// Rotary angles of every position of the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton::model {

// cos and sin of position * base^(-2i / rotary_dims), computed in float64 and
// stored as float32: positions far out are as exact as the first ones.
class RopeTable final {
 public:
  RopeTable(uint32_t context, uint32_t rotary_dims, double base);

  // [rotary_dims / 2] each. REQUIRES: position < context.
  std::span<const float> cos(uint32_t position) const { return Row(cos_, position); }
  std::span<const float> sin(uint32_t position) const { return Row(sin_, position); }

 private:
  std::span<const float> Row(const std::vector<float>& table, uint32_t position) const {
    return {table.data() + size_t{position} * pairs_, pairs_};
  }

  uint32_t pairs_;
  std::vector<float> cos_, sin_;  // [context, pairs]
};

}  // namespace baton::model
