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
  // Whether the last range that was looked at has the end; `in_found` is the
  // prefix as a row of what was found there sees it.
  bool in_range = false;
  Prefix in_found = {};
  bool from_first = false;  // whether that range is the first one
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

  // What a selection that is in_range, or what `in_found` holds of it, weighs in
  // each block. False, with nothing written, when its key is above the range.
  bool BlockMasses(const Selectable& from, const Prefix& in_found, double* sums) const;
  // What the pass summed, by block.
  const double* above() const { return above_.data(); }
  // Mass and surprise of what `in_found` holds in the range. REQUIRES: in the
  // order of the logits.
  Masses InRange(const Selectable& from, const Prefix& in_found, Distribution distribution) const;

 private:
  // Elements that the prefix's end is among. The arrays only grow; the first
  // `size` of each count.
  struct Candidates {
    FloatArray keys, weights;
    size_t size = 0;

    Row row() const { return {keys.data(), size, nullptr}; }
    Found room() { return {.logits = keys.data(), .weights = weights.data()}; }
  };

  // Where a prefix ends, as a row of what was found sees it.
  struct End {
    Prefix in_found;
    double mass = 0;
  };

  bool of_one_key() const { return range_.low == range_.high; }
  Row found_keys(const Selectable& from) const;
  size_t found_before(size_t block) const { return block == 0 ? 0 : until_[block - 1]; }
  Masses SplitRow(const Selectable& from, Range range, const Found& found) const;
  double MassOf(const Row& row, const Prefix& prefix, const float* weights) const;
  void MarkRange(const Selectable& from, size_t block, uint64_t* bits) const;
  size_t IndexOf(const Selectable& from, size_t position) const;
  size_t Reach(size_t size, const float* weights, const uint64_t* bits, double& above,
               double target) const;

  // Of a range of one key.
  float WeightOfTies(const Selectable& from) const;
  double MassOfTies(const Selectable& from);
  End EndInTies(const Selectable& from, double above, double target);
  // Of others.
  End Narrow(const Selectable& from, double above, double total, double target);
  Range GuessEvenly(const Range& all, double share) const;
  Range GuessBySample(const Range& all, double share);
  End EndAmong(const Row& keys, float key, double above, double target);
  End SortRest(const Row& found, double above, double target);

  const RowPasses* const passes_;
  // The range that was looked at last, and what was found there.
  Range range_;
  size_t found_ = 0;
  FloatArray logits_, weights_, keys_;
  std::vector<double> above_, within_, ties_;
  std::vector<uint32_t> until_;
  Candidates left_, spare_;
  std::vector<uint32_t> order_;
};

}  // namespace baton::sampling
