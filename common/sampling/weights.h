// SPDX-License-Identifier: Apache-2.0
// Unnormalized probabilities that add up without rounding.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace baton::sampling {

// exp((logit - max) * scale) rounded to a multiple of 2^-35. Sums of up to 2^18
// weights are exact in double, so they do not depend on the order of addition.
// Own arithmetic instead of libm's, whose last bits depend on the CPU.
// REQUIRES: logit <= max, scale > 0, all finite. Error below 2e-7 of the
// exact value plus 2^-36.
double Weight(float logit, float max, float scale);

// Weights of `logits` summed in groups of kWeightGroup; returns the total.
inline constexpr size_t kWeightGroup = 64;
double SumWeights(std::span<const float> logits, float max, float scale,
                  std::vector<double>& group_sums);

}  // namespace baton::sampling
