// SPDX-License-Identifier: Apache-2.0
// The bounds of logits and keys, by the names that the steps of the chain use.
#pragma once

#include <limits>

namespace baton::sampling {

inline constexpr float kFloatMax = std::numeric_limits<float>::max();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace baton::sampling
