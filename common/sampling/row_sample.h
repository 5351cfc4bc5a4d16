// SPDX-License-Identifier: Apache-2.0
// Guesses where in a row a prefix ends.
#pragma once

#include <cstddef>
#include <vector>

#include "common/sampling/row_passes.h"

namespace baton::sampling {

// Some elements that stand for all of a row: the best ones, which may weigh
// nearly everything, and of the others every so many-th. Guesses decide about
// time alone: no result depends on them.
//
// Thread safety: none. Keeps its buffers from row to row.
class RowSample final {
 public:
  explicit RowSample(const RowPasses* passes) : passes_(passes) {}

  // Forgets the row before. `row` must outlive the use of the sample.
  void Start(const Row& row);

  // Keys that most likely enclose the end of the best `count` logits.
  Range GuessCount(size_t count);

  // What follows is about logits >= floor, weighed like this.
  void Weigh(Distribution distribution, float floor);
  // ... and about those >= floor.
  void Restrict(float floor);
  // Keys that most likely enclose the end of the best ones that have `share` of
  // the weight: logits, or typicalities when that is not null.
  Range Guess(double share, const Typicality* typicality);

 private:
  void TakeHead();
  void TakeRest();
  float GroupBound(size_t groups);
  // Two keys, near to each other, that `wanted` of the masses lie between.
  Range Bisect(const float* keys, const float* masses, size_t size, float wanted, Range between,
               int rounds, float* inside = nullptr) const;
  Range BisectToKeys(const float* keys, float wanted, Range between, float much);
  Range Enclose(const float* keys, float share, float least);
  Range KeysIn(const float* keys, const Range& range);
  Range TiesIn(const float* keys, const Range& range, float much);

  const RowPasses* const passes_;
  Row row_;
  size_t size_ = 0, head_ = 0;  // elements, and how many of them are the row's best
  float head_bound_ = 0;        // which are all that reach this
  bool has_rest_ = false;
  float floor_ = 0;
  // How many elements one stands for; what they weigh; and its square, of those
  // that stand for others.
  FloatArray logits_, counts_, masses_, squares_, keys_, ones_;
  FloatArray near_, near_masses_;
};

}  // namespace baton::sampling
