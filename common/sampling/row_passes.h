// SPDX-License-Identifier: Apache-2.0
// Loops over a whole row of logits. One source, compiled for several
// instruction sets, with the same bits from each of them: every operation is
// on one element, or a sum that is exact in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton::sampling {

// Elements that share a maximum, a sum and a word of bits.
inline constexpr size_t kGroup = 64;
constexpr size_t GroupsOf(size_t size) { return (size + kGroup - 1) / kGroup; }

// How the weights of a row follow from its logits: exp((logit - max) * scale).
struct Distribution {
  float max = 0;
  float scale = 1;
};

// Sizes are in elements and need not be multiples of kGroup. Arrays named
// `group_` hold one element per group.
struct RowPasses {
  const char* isa;

  // Maximum of each group. False, with the rest undefined, when a value is NaN
  // or infinite.
  bool (*scan)(const float* values, size_t size, float* group_max);

  // Weights (see Weight) and their sums; returns the total.
  double (*weigh)(const float* logits, size_t size, Distribution distribution, float* weights,
                  double* group_sums);

  // Sum of weight * surprise, where surprise is (max - logit) * scale; each
  // product is rounded to the grid of the weights.
  double (*surprise)(const float* logits, const float* weights, size_t size,
                     Distribution distribution);

  // keys[i] = -|surprise[i] - mean|, and their maxima.
  void (*typicality)(const float* logits, size_t size, Distribution distribution, float mean,
                     float* keys, float* group_max);

  // Sum of the weights of keys > high; bit i of group_bits: low <= key <= high.
  // `weights` may be null: each is 1.
  double (*split)(const float* keys, const float* weights, size_t size, float low, float high,
                  uint64_t* group_bits);

  // Zeroes the weights of keys < key, and of keys == key beyond index `last`;
  // new sums and the new total.
  double (*cut)(const float* keys, size_t size, float key, size_t last, float* weights,
                double* group_sums);
};

// The best one for this CPU.
const RowPasses& BestRowPasses();
// All that this CPU can run, the best first.
const std::vector<const RowPasses*>& AllRowPasses();

}  // namespace baton::sampling
