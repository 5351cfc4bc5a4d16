// SPDX-License-Identifier: Apache-2.0
#include "common/model/rope_table.h"

#include <cmath>

namespace baton::model {

RopeTable::RopeTable(uint32_t context, uint32_t rotary_dims, double base)
    : pairs_(rotary_dims / 2), cos_(size_t{context} * pairs_), sin_(cos_.size()) {
  for (uint32_t i = 0; i < pairs_; ++i) {
    const double frequency = std::pow(base, -2.0 * i / rotary_dims);
    for (uint32_t position = 0; position < context; ++position) {
      const double angle = position * frequency;
      cos_[size_t{position} * pairs_ + i] = static_cast<float>(std::cos(angle));
      sin_[size_t{position} * pairs_ + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace baton::model
