// SPDX-License-Identifier: Apache-2.0
// The best part of a row by count or by weight, without sorting the row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling/row_passes.h"

namespace baton::sampling {

// A row to select from. The order of preference: higher key, then lower index.
struct KeyedRow {
  std::span<const float> keys;         // finite
  std::span<const float> group_max;    // of the keys
  std::span<const float> weights;      // on the grid; empty: each is 1
  std::span<const double> group_sums;  // of the weights; empty with them
};

// A prefix of that order: keys above `key`, and those equal to it up to index
// `last`.
struct Prefix {
  float key = 0;
  size_t last = 0;

  bool Holds(float other, size_t index) const {
    return other > key || (other == key && index <= last);
  }
};

// Finds prefixes by narrowing: a guess from a sample gives two keys that most
// likely enclose the prefix's end; one pass over the row sums what is above
// them and collects what is between; and so on among the collected ones, until
// few are left to sort (after Floyd and Rivest, 1975, "Expected time bounds for
// selection"). Sums are exact, so the guesses decide about time alone.
//
// Thread safety: none. Keeps its buffers from call to call.
class Selector final {
 public:
  explicit Selector(const RowPasses* passes) : passes_(passes) {}

  // The shortest prefix whose weights add up to at least `target`; all of the
  // row when nothing does. `total` is the sum of all weights.
  Prefix Select(const KeyedRow& row, double total, double target);

 private:
  // Elements that the prefix's end is among, by index. The arrays only grow;
  // the first `size` of each count.
  struct Candidates {
    std::vector<float> keys, weights;
    std::vector<uint32_t> indices;
    size_t size = 0;

    void Reserve(size_t most);
    void Push(float key, float weight, size_t index) {
      keys[size] = key;
      weights[size] = weight;
      indices[size++] = static_cast<uint32_t>(index);
    }
    std::span<const float> Keys() const { return std::span(keys).first(size); }
    std::span<const float> Weights() const { return std::span(weights).first(size); }
  };
  struct Range {
    float low, high;
  };
  struct Sampled {
    float key, weight;
  };
  // Of the sample's keys, from the highest down.
  struct Bucket {
    float weight = 0, squares = 0;
  };
  static constexpr size_t kBuckets = 512;

  // A key that at least `groups` groups reach, and seldom many more.
  float GroupBound(std::span<const float> group_max, size_t groups);
  // Collects keys >= bound. False, with the collection cut short, when these
  // are very many.
  bool GatherHead(const KeyedRow& row, float bound);
  // Where the prefix's end is likely to be, when keys > `ceiling` weigh `above`.
  Range Guess(std::span<const float> keys, std::span<const float> weights, float ceiling,
              double above, double total, double target);
  void TakeSample(std::span<const float> keys, std::span<const float> weights, float ceiling);
  float ErrorOf(float wanted, float sum) const;
  Range TiesIn(const Range& range) const;
  Prefix SelectBelow(const KeyedRow& row, float ceiling, double above, double total, double target);
  void Collect(const KeyedRow& row);
  double SumFound();
  Prefix WalkTies(const KeyedRow& row, float key, double sum, double target) const;
  Prefix Narrow(double above, double total, double target);
  void KeepBits();
  Prefix SortRest(double above, double target);

  const RowPasses* const passes_;
  Candidates found_;
  std::vector<uint64_t> bits_, spare_bits_;
  std::vector<Sampled> sample_;
  size_t sampled_ = 0;
  std::array<Bucket, kBuckets> buckets_;
  std::vector<uint32_t> order_;
};

}  // namespace baton::sampling
