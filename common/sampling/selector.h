// SPDX-License-Identifier: Apache-2.0
// The best part of a row by count or by weight, without sorting the row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/sampling/row_passes.h"

namespace baton::sampling {

// A row to select from: `typicality` null orders it by logits, `weights` null
// counts. Only what `prefix` holds is there.
struct Selectable {
  Row row;
  Prefix prefix = {};
  const Typicality* typicality = nullptr;
  const float* weights = nullptr;  // on the grid, room for whole groups
};

struct Selection {
  Prefix prefix;  // by the order of the Selectable
  double mass = 0;
  // Whether the first range had the end, and the prefix holds all elements of
  // its key: BlockMasses() has a meaning.
  bool from_first = false;
};

// Finds prefixes by narrowing: two keys that most likely enclose the prefix's
// end are guessed; one pass over the row sums what is above them and collects
// what is between; and so on among the collected ones, until few are left to
// sort (after Floyd and Rivest, 1975, "Expected time bounds for selection").
// Sums are exact, so the guesses decide about time alone.
//
// Thread safety: none. Keeps its buffers from call to call.
class Selector final {
 public:
  explicit Selector(const RowPasses* passes) : passes_(passes) {}

  // Where the first pass over a row of this size, which looks for this range, is
  // to put what it finds.
  Found RoomFor(size_t size, Range range);

  // Passes over the row, then selects.
  Selection Select(const Selectable& from, Range range, double target);
  // The shortest prefix whose weights add up to at least `target`, which the
  // whole row must. `first` is what a pass said that looked for `range` and
  // filled RoomFor().
  Selection SelectFrom(const Selectable& from, Range range, const Masses& first, double target);

  // What a selection that is from_first, or what `prefix` holds of it, weighs in
  // each block. REQUIRES: its key is in the first range.
  void BlockMasses(const Selectable& from, const Prefix& prefix, double* sums);
  // What the first pass summed, by block.
  const double* above() const { return above_.data(); }

  // Logits and weights of the first range.
  Row found() const { return {logits_.data(), found_, nullptr}; }
  const float* found_weights() const { return weights_.data(); }

 private:
  // Elements that the prefix's end is among. The arrays only grow; the first
  // `size` of each count.
  struct Candidates {
    FloatArray keys, weights;
    size_t size = 0;

    Row row() const { return {keys.data(), size, nullptr}; }
    Found room() { return {.logits = keys.data(), .weights = weights.data()}; }
  };

  Found Room(size_t size);
  Masses SplitRow(const Selectable& from, Range range, const Found& found) const;
  double MassOf(const Row& row, const float* weights) const;
  Selection WalkTies(const Selectable& from, float key, double above, double target);
  Selection Narrow(const Selectable& from, double above, double total, double target);
  Range GuessEnd(const Range& all, double above, double total, double target) const;
  Selection SortRest(const Selectable& from, double above, double target);

  const RowPasses* const passes_;
  size_t found_ = 0;  // in the first range
  FloatArray logits_, weights_;
  std::vector<double> above_;
  std::vector<uint32_t> until_;
  Candidates left_, spare_;
  std::vector<uint32_t> order_;
};

}  // namespace baton::sampling
