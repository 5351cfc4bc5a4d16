// SPDX-License-Identifier: Apache-2.0
// Loops over a whole row of logits. One source, compiled for several
// instruction sets, with the same bits from each of them: every operation is
// on one element, or a sum that is exact in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

namespace baton::sampling {

// Arrays that a whole vector is read from at once: no read crosses a cache line.
template <typename T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}  // NOLINT: as allocators are
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* array, size_t) { ::operator delete (array, std::align_val_t{64}); }
  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};
using FloatArray = std::vector<float, LineAllocator<float>>;

// Elements that share a maximum and a word of bits.
inline constexpr size_t kGroup = 64;
constexpr size_t GroupsOf(size_t size) { return (size + kGroup - 1) / kGroup; }
// Elements that share a sum: a draw walks over these, and then looks into one.
inline constexpr size_t kBlock = 64 * kGroup;
constexpr size_t BlocksOf(size_t size) { return (size + kBlock - 1) / kBlock; }

// How the weights of a row follow from its logits: exp((logit - max) * scale).
struct Distribution {
  float max = 0;
  float scale = 1;
};

// Keys of typical sampling: -|surprise - mean|, where the surprise is
// (max - logit) * scale.
struct Typicality {
  Distribution distribution;
  float mean = 0;
};

// A row to work on. Elements are preferred by higher key (the logit or its
// typicality), then by lower index.
struct Row {
  const float* logits = nullptr;  // [size], finite
  size_t size = 0;
  // Maxima of the groups: those that hold nothing of interest are passed over.
  // Null: none is.
  const float* group_max = nullptr;
};

// A prefix of the order of preference: keys above `key`, and those equal to it
// up to index `last`. At first everything.
struct Prefix {
  float key = -std::numeric_limits<float>::infinity();
  size_t last = std::numeric_limits<size_t>::max();

  bool Holds(float other, size_t index) const {
    return other > key || (other == key && index <= last);
  }
};

// A row and its prefix, seen from one of its blocks.
Row BlockOf(const Row& row, size_t block);
Prefix BlockOf(const Prefix& prefix, size_t block);

// Keys from low to high, both included.
struct Range {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

// Holds no key, and all keys are above it: a pass sums everything.
inline constexpr Range kAllIsAbove = {std::numeric_limits<float>::infinity(),
                                      -std::numeric_limits<float>::infinity()};

// Where a pass puts the elements in its range, in order. Room: a group more than
// the row has. Not the arrays that it reads.
struct Found {
  float* logits = nullptr;   // null: they are counted
  float* weights = nullptr;  // 1 each where there are no weights
  // Optional: sums of what is above the range, by block, and how many were
  // found up to the end of each.
  double* above = nullptr;
  uint32_t* until = nullptr;
  double* within = nullptr;  // of what is in the range, by block; from `split` alone
};

// What a pass over a row says.
struct Masses {
  double total = 0;     // of all weights
  double above = 0;     // of those whose keys are above the range
  double surprise = 0;  // sum of weight * surprise of these
  size_t found = 0;     // elements in the range

  friend bool operator==(const Masses&, const Masses&) = default;
};

// Sizes are in elements and need not be multiples of kGroup. Weights are on the
// grid and at most 1; arrays of them, and arrays that are written, have room
// for whole groups. Bits: a word per group, element i is bit i % 64 of word
// i / 64. What the given prefix of the logits does not hold is not there.
struct RowPasses {
  const char* isa;

  // Maximum of each group. False, with the rest undefined, when a value is NaN
  // or infinite.
  bool (*scan)(const float* values, size_t size, float* group_max);

  // Writes the weights of the groups that `prefix` reaches into, and finds the
  // logits in `range`. Surprises are summed when asked for, each product
  // rounded to the grid of the weights.
  Masses (*weigh)(const Row& row, const Prefix& prefix, Distribution distribution, Range range,
                  bool surprise, float* weights, const Found& found);
  // The total of weigh, of a whole row.
  double (*mass)(const Row& row, Distribution distribution);

  // Finds the keys in `range`, and sums the weights (null: each is 1) of those
  // above it; no total, no surprise. Keys are the logits when `typicality` is
  // null.
  Masses (*split)(const Row& row, const Prefix& prefix, const Typicality* typicality,
                  const float* weights, Range range, const Found& found);

  // Bits of what is in `prefix` and, by its typicality, in `typical`.
  void (*mark)(const Row& row, const Prefix& prefix, const Typicality* typicality,
               const Prefix& typical, uint64_t* bits);
  // Sums of the weights whose bits are set, for each group; returns the total.
  double (*sum)(const float* weights, size_t size, const uint64_t* bits, double* group_sums);

  // keys[i] is the typicality of a logit.
  void (*typical_keys)(const float* logits, size_t size, const Typicality& typicality, float* keys);
  // Sum of weight * surprise as in `weigh`, of the logits in `prefix`.
  double (*surprise)(const Row& row, const Prefix& prefix, const float* weights,
                     Distribution distribution);

  // Least and greatest of a row that is not empty.
  Range (*extent)(const float* keys, size_t size);
  // About the sums of the weights of keys above each of four bounds: the one
  // result whose last bits differ from one instruction set to another. For
  // guesses.
  void (*about_above)(const float* keys, const float* weights, size_t size, const float* bounds,
                      float* sums);
};

// The best one for this CPU.
const RowPasses& BestRowPasses();
// All that this CPU can run, the best first.
const std::vector<const RowPasses*>& AllRowPasses();

}  // namespace baton::sampling
