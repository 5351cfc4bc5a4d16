// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

constexpr size_t kSortBelow = 24;
constexpr float kLowest = -kFloatMax;
constexpr double kMostSurprise = 86.9;  // row_passes_code.h

float NextAbove(float key) { return std::nextafter(key, kInfinity); }
float NextBelow(float key) { return std::nextafter(key, -kInfinity); }

// Half way between two floats, counted in representable values.
float Middle(float low, float high) {
  const auto ordered = [](float value) {
    const auto bits = std::bit_cast<int32_t>(value);
    return bits < 0 ? int64_t{std::numeric_limits<int32_t>::min()} - bits : int64_t{bits};
  };
  const int64_t middle = (ordered(low) + ordered(high)) >> 1;
  const int64_t bits = middle < 0 ? int64_t{std::numeric_limits<int32_t>::min()} - middle : middle;
  return std::bit_cast<float>(static_cast<int32_t>(bits));
}

// A logit below which none is as typical as `key`: surprises grow as logits fall.
float LeastLogit(const Typicality& typicality, float key) {
  const auto& [distribution, mean] = typicality;
  const double surprise = static_cast<double>(mean) - key;
  if (!(surprise < kMostSurprise)) return -kInfinity;  // those beyond are cut to that
  // Allows for the rounding of surprises and keys.
  const double below = (surprise + 1e-5 * (1 + std::abs(mean))) / distribution.scale;
  return static_cast<float>(distribution.max - below * 1.00001 - std::abs(distribution.max) * 1e-6);
}

template <typename Array>
void Grow(Array& array, size_t size) {
  if (array.size() < size) array.resize(size);
}

}  // namespace

Found Selector::Room(size_t size) {
  const size_t room = (GroupsOf(size) + 1) * kGroup;  // groups may be read from anywhere
  for (FloatArray* array :
       {&logits_, &weights_, &left_.keys, &left_.weights, &spare_.keys, &spare_.weights}) {
    Grow(*array, room);
  }
  Grow(above_, BlocksOf(size));
  Grow(until_, BlocksOf(size));
  return {logits_.data(), weights_.data(), above_.data(), until_.data()};
}

Found Selector::RoomFor(size_t size, Range range) {
  Found room = Room(size);
  if (range.low == range.high) room.logits = room.weights = nullptr;  // equal: see WalkTies
  return room;
}

Selection Selector::Select(const Selectable& from, Range range, double target) {
  return SelectFrom(from, range, SplitRow(from, range, RoomFor(from.row.size, range)), target);
}

Masses Selector::SplitRow(const Selectable& from, Range range, const Found& found) const {
  // Logits that are below the range by either order: groups without others are
  // passed over.
  const float low = std::min(range.low, NextAbove(range.high));
  const float least = from.typicality == nullptr ? low : LeastLogit(*from.typicality, low);
  const Prefix prefix = least > from.prefix.key ? Prefix{least} : from.prefix;
  return passes_->split(from.row, prefix, from.typicality, from.weights, range, found);
}

double Selector::MassOf(const Row& row, const float* weights) const {
  return passes_->split(row, {}, nullptr, weights, kAllIsAbove, {}).above;
}

Selection Selector::SelectFrom(const Selectable& from, Range range, const Masses& first,
                               double target) {
  double above = first.above;
  found_ = first.found;
  bool again = false;
  const auto split_again = [&](Range other) {
    range = other;
    Found room = RoomFor(from.row.size, range);
    room.above = nullptr;
    room.until = nullptr;
    const Masses masses = SplitRow(from, range, room);
    above = masses.above;
    found_ = masses.found;
    again = true;
  };
  if (above >= target) split_again({NextAbove(range.high), kInfinity});  // the end lies higher
  for (;;) {
    if (range.low == range.high) {
      const Selection selection = WalkTies(from, range.low, above, target);
      if (selection.mass >= target) return selection;
      above = selection.mass;
    } else {
      const double before = above;
      above += MassOf(found(), weights_.data());
      if (above >= target) {
        Selection selection = Narrow(from, before, above, target);
        selection.from_first = !again && selection.prefix.last >= from.row.size;
        return selection;
      }
    }
    // The end lies lower: banned tokens, which may be nearly all, come last.
    if (range.low <= kLowest) return {{}, above, false};  // all that there is
    const float high = NextBelow(range.low);
    split_again(high > kLowest ? Range{NextAbove(kLowest), high} : Range{kLowest, kLowest});
  }
}

void Selector::BlockMasses(const Selectable& from, const Prefix& prefix, double* sums) {
  if (from.typicality != nullptr) {
    passes_->typical_keys(logits_.data(), found_, *from.typicality, left_.keys.data());
  }
  const float* keys = from.typicality != nullptr ? left_.keys.data() : logits_.data();
  const Range range = {kInfinity, NextBelow(prefix.key)};
  size_t begin = 0;
  for (size_t block = 0; block < BlocksOf(from.row.size); begin = until_[block++]) {
    const Row part = {keys + begin, until_[block] - begin, nullptr};
    sums[block] = above_[block];
    if (part.size == 0) continue;
    sums[block] += passes_->split(part, {}, nullptr, weights_.data() + begin, range, {}).above;
  }
}

// Elements of equal keys, by index; those of higher keys weigh `above`.
Selection Selector::WalkTies(const Selectable& from, float key, double above, double target) {
  const Prefix all = {key}, none = {NextAbove(key)};
  uint64_t ties[kBlock / kGroup], higher[kBlock / kGroup];
  double sums[kBlock / kGroup];
  FloatArray ones(from.weights == nullptr ? kBlock : 0, 1);
  for (size_t block = 0; block < BlocksOf(from.row.size); ++block) {
    const Row row = BlockOf(from.row, block);
    const Prefix held = BlockOf(from.prefix, block);
    const bool typical = from.typicality != nullptr;
    const auto mark = [&](const Prefix& prefix, uint64_t* bits) {
      const bool shorter = !typical && prefix.key > held.key;
      passes_->mark(row, shorter ? prefix : held, from.typicality, prefix, bits);
    };
    mark(all, ties);
    mark(none, higher);
    for (size_t i = 0; i < GroupsOf(row.size); ++i) ties[i] &= ~higher[i];
    const float* weights = from.weights != nullptr ? from.weights + block * kBlock : ones.data();
    passes_->sum(weights, row.size, ties, sums);
    for (size_t group = 0; group < GroupsOf(row.size); ++group) {
      if (above + sums[group] < target) {
        above += sums[group];
        continue;
      }
      for (uint64_t bits = ties[group]; bits != 0; bits &= bits - 1) {
        const size_t index = group * kGroup + static_cast<size_t>(std::countr_zero(bits));
        above += weights[index];
        if (above >= target) return {{key, block * kBlock + index}, above, false};
      }
    }
  }
  return {{key}, above, false};
}

// As if the weight were spread evenly over the keys.
Range Selector::GuessEnd(const Range& all, double above, double total, double target) const {
  const auto part = static_cast<float>((target - above) / (total - above));
  const float width = all.high - all.low, about = all.high - width * part;
  const float allowance = width * (1.0f / 32 + 1 / std::sqrt(static_cast<float>(left_.size)));
  return {std::max(all.low, about - allowance), std::min(all.high, about + allowance)};
}

// The end is among the elements found; `above` is the weight of what stands
// before them, `total` with all of them.
Selection Selector::Narrow(const Selectable& from, double above, double total, double target) {
  left_.size = found_;
  if (from.typicality != nullptr) {
    passes_->typical_keys(logits_.data(), found_, *from.typicality, left_.keys.data());
  } else {
    std::copy_n(logits_.data(), found_, left_.keys.data());
  }
  std::copy_n(weights_.data(), found_, left_.weights.data());
  size_t before = std::numeric_limits<size_t>::max();
  while (left_.size > kSortBelow) {
    const Range all = passes_->extent(left_.keys.data(), left_.size);
    if (all.low == all.high) break;
    Range range = GuessEnd(all, above, total, target);
    if (!(range.low <= range.high) || left_.size > before / 2) {  // too slow: halve
      range = {std::max(Middle(all.low, all.high), NextAbove(all.low)), all.high};
    }
    before = left_.size;
    const auto split = [&](Range part) {
      const Masses masses =
          passes_->split(left_.row(), {}, nullptr, left_.weights.data(), part, spare_.room());
      spare_.size = masses.found;
      return masses.above;
    };
    const double until_high = above + split(range);
    const double until_low = until_high + MassOf(spare_.row(), spare_.weights.data());
    if (until_high >= target) {
      split({NextAbove(range.high), kInfinity});
      total = until_high;
    } else if (until_low >= target) {
      above = until_high;
      total = until_low;
    } else {
      split({-kInfinity, NextBelow(range.low)});
      above = until_low;
    }
    std::swap(left_, spare_);
  }
  return SortRest(from, above, target);
}

Selection Selector::SortRest(const Selectable& from, double above, double target) {
  const FloatArray& keys = left_.keys;
  if (left_.size > kSortBelow) return WalkTies(from, keys[0], above, target);  // all are equal
  order_.resize(left_.size);
  std::iota(order_.begin(), order_.end(), 0u);
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return keys[a] > keys[b] || (keys[a] == keys[b] && a < b);
  });
  float key = 0;
  for (size_t i = 0; i < left_.size;) {
    key = keys[order_[i]];
    double until = above;  // with all of this key
    size_t end = i;
    while (end < left_.size && keys[order_[end]] == key) until += left_.weights[order_[end++]];
    if (until >= target) {
      const bool all_of_them = until - left_.weights[order_[end - 1]] < target;
      return all_of_them ? Selection{{key}, until, false} : WalkTies(from, key, above, target);
    }
    above = until;
    i = end;
  }
  return {{key}, above, false};
}

}  // namespace baton::sampling
