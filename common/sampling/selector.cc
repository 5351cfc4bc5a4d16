// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

constexpr size_t kSortBelow = 24;
constexpr size_t kTrustBelow = 8192;  // candidates whose weight is taken to be spread evenly
constexpr size_t kSampled = 128;      // of others
constexpr float kLowest = -kFloatMax;
constexpr double kMostSurprise = 86.9;  // row_passes_code.h

float NextAbove(float key) { return std::nextafter(key, kInfinity); }
float NextBelow(float key) { return std::nextafter(key, -kInfinity); }

// A logit below which none is as typical as `key`: surprises grow as logits fall.
float LeastLogit(const Typicality& typicality, float key) {
  const auto& [distribution, mean] = typicality;
  const double surprise = static_cast<double>(mean) - key;
  if (!(surprise < kMostSurprise)) return -kInfinity;  // those beyond are cut to that
  // Allows for the rounding of surprises and keys.
  const double below = (surprise + 1e-5 * (1 + std::abs(mean))) / distribution.scale;
  return static_cast<float>(distribution.max - below * 1.00001 - std::abs(distribution.max) * 1e-6);
}

// Of a prefix, what the part of the row from `begin` on sees.
Prefix Behind(const Prefix& prefix, size_t begin) {
  if (prefix.last >= begin) return {prefix.key, prefix.last - begin};
  return {NextAbove(prefix.key)};
}

// How many of equal weights, more than none, reach the target: the sums are exact.
size_t CountUntil(double above, double weight, double target) {
  double count = std::max(1.0, std::ceil((target - above) / weight));
  while (count > 1 && above + (count - 1) * weight >= target) --count;
  while (above + count * weight < target) ++count;
  return static_cast<size_t>(count);
}

template <typename Array>
void Grow(Array& array, size_t size) {
  if (array.size() < size) array.resize(size);
}

}  // namespace

// Of a range of one key its elements need not be copied: they are counted.
Found Selector::RoomFor(size_t size, Range range) {
  const size_t room = (GroupsOf(size) + 1) * kGroup;  // groups may be read from anywhere
  for (FloatArray* array :
       {&logits_, &weights_, &keys_, &left_.keys, &left_.weights, &spare_.keys, &spare_.weights}) {
    Grow(*array, room);
  }
  Grow(above_, BlocksOf(size));
  Grow(within_, BlocksOf(size));
  Grow(ties_, BlocksOf(size));
  Grow(until_, BlocksOf(size));
  Found found = {logits_.data(), weights_.data(), above_.data(), until_.data(), nullptr};
  if (range.low == range.high) {
    found.logits = found.weights = nullptr;
    found.within = within_.data();
  }
  return found;
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

double Selector::MassOf(const Row& row, const Prefix& prefix, const float* weights) const {
  return passes_->split(row, prefix, nullptr, weights, kAllIsAbove, {}).above;
}

Selection Selector::SelectFrom(const Selectable& from, Range range, const Masses& first,
                               double target) {
  range_ = range;
  found_ = first.found;
  double above = first.above;
  bool again = false;
  const auto split_again = [&](Range other) {
    const Masses masses = SplitRow(from, other, RoomFor(from.row.size, other));
    range_ = other;
    found_ = masses.found;
    above = masses.above;
    again = true;
  };
  if (above >= target) split_again({NextAbove(range.high), kInfinity});  // the end lies higher
  for (;;) {
    const double total =
        above + (of_one_key() ? MassOfTies(from)
                              : MassOf({logits_.data(), found_, nullptr}, {}, weights_.data()));
    if (total >= target) {
      const End end =
          of_one_key() ? EndInTies(from, above, target) : Narrow(from, above, total, target);
      Prefix prefix = end.in_found;
      if (prefix.last < found_) prefix.last = IndexOf(from, prefix.last);
      return {prefix, end.mass, true, end.in_found, !again};
    }
    above = total;
    // The end lies lower: banned tokens, which may be nearly all, come last.
    if (range_.low <= kLowest) return {{}, above};  // all that there is
    const float high = NextBelow(range_.low);
    split_again(high > kLowest ? Range{NextAbove(kLowest), high} : Range{kLowest, kLowest});
  }
}

// Of the range's one key, which are told by block.
double Selector::MassOfTies(const Selectable& from) {
  if (from.typicality == nullptr) {
    const double weight = WeightOfTies(from);
    for (size_t block = 0; block < BlocksOf(from.row.size); ++block) {
      within_[block] = static_cast<double>(until_[block] - found_before(block)) * weight;
    }
  }
  return std::accumulate(within_.data(), within_.data() + BlocksOf(from.row.size), 0.0);
}

// Equal logits weigh the same.
float Selector::WeightOfTies(const Selectable& from) const {
  if (from.weights == nullptr) return 1;
  return found_ == 0 ? 0 : from.weights[IndexOf(from, 0)];
}

Selector::End Selector::EndInTies(const Selectable& from, double above, double target) {
  size_t block = 0;
  while (above + within_[block] < target) above += within_[block++];
  size_t position = found_before(block);
  if (from.typicality == nullptr) {
    const double weight = WeightOfTies(from);
    const size_t count = CountUntil(above, weight, target);
    position += count - 1;
    within_[block] = static_cast<double>(count) * weight;
  } else {
    uint64_t bits[kBlock / kGroup];
    MarkRange(from, block, bits);
    double until = above;
    const size_t last =
        Reach(BlockOf(from.row, block).size, from.weights + block * kBlock, bits, until, target);
    for (size_t i = 0; i < last; ++i) position += bits[i / kGroup] >> (i % kGroup) & 1;
    within_[block] = until - above;
  }
  std::fill(within_.begin() + static_cast<std::ptrdiff_t>(block) + 1, within_.end(), 0.0);
  return {{range_.low, position}, above + within_[block]};
}

// The first element at which the running sum of those whose bits are set
// reaches the target.
size_t Selector::Reach(size_t size, const float* weights, const uint64_t* bits, double& above,
                       double target) const {
  double sums[kBlock / kGroup];
  passes_->sum(weights, size, bits, sums);
  size_t group = 0;
  while (above + sums[group] < target) above += sums[group++];
  for (uint64_t rest = bits[group];; rest &= rest - 1) {
    const size_t index = group * kGroup + static_cast<size_t>(std::countr_zero(rest));
    above += weights[index];
    if (above >= target) return index;
  }
}

// Which elements of a block are in the range.
void Selector::MarkRange(const Selectable& from, size_t block, uint64_t* bits) const {
  const Row row = BlockOf(from.row, block);
  const Prefix held = BlockOf(from.prefix, block);
  const auto mark = [&](float key, uint64_t* to) {
    const bool shorter = from.typicality == nullptr && key > held.key;
    passes_->mark(row, shorter ? Prefix{key} : held, from.typicality, {key}, to);
  };
  uint64_t higher[kBlock / kGroup];
  mark(range_.low, bits);
  mark(NextAbove(range_.high), higher);
  for (size_t i = 0; i < GroupsOf(row.size); ++i) bits[i] &= ~higher[i];
}

// Where in the row the element stands that was found at `position`.
size_t Selector::IndexOf(const Selectable& from, size_t position) const {
  size_t block = 0;
  while (until_[block] <= position) ++block;
  uint64_t bits[kBlock / kGroup];
  MarkRange(from, block, bits);
  size_t rank = position - found_before(block), group = 0;
  for (; rank >= static_cast<size_t>(std::popcount(bits[group])); ++group) {
    rank -= static_cast<size_t>(std::popcount(bits[group]));
  }
  uint64_t rest = bits[group];
  for (; rank > 0; --rank) rest &= rest - 1;
  return block * kBlock + group * kGroup + static_cast<size_t>(std::countr_zero(rest));
}

Row Selector::found_keys(const Selectable& from) const {
  return {(from.typicality != nullptr ? keys_ : logits_).data(), found_, nullptr};
}

bool Selector::BlockMasses(const Selectable& from, const Prefix& in_found, double* sums) const {
  if (in_found.key > range_.high) return false;
  const Row keys = found_keys(from);
  for (size_t block = 0; block < BlocksOf(from.row.size); ++block) {
    sums[block] = above_[block];
    const size_t begin = found_before(block), size = until_[block] - begin;
    if (of_one_key()) {
      sums[block] += within_[block];
    } else if (size > 0) {
      sums[block] +=
          MassOf({keys.logits + begin, size, nullptr}, Behind(in_found, begin), &weights_[begin]);
    }
  }
  return true;
}

Masses Selector::InRange(const Selectable& from, const Prefix& in_found,
                         Distribution distribution) const {
  if (!of_one_key()) {
    const Row row = {logits_.data(), found_, nullptr};
    return {.total = MassOf(row, in_found, weights_.data()),
            .surprise = passes_->surprise(row, in_found, weights_.data(), distribution)};
  }
  const float weights[kGroup] = {WeightOfTies(from)};
  const auto count = static_cast<double>(std::min(in_found.last, found_ - 1) + 1);
  return {
      .total = count * weights[0],
      .surprise = count * passes_->surprise({&range_.low, 1, nullptr}, {}, weights, distribution)};
}

// As if the weight were spread evenly over the keys.
Range Selector::GuessEvenly(const Range& all, double share) const {
  const float width = all.high - all.low;
  const float about = all.high - width * static_cast<float>(share);
  const float allowance = width * (1.0f / 32 + 1 / std::sqrt(static_cast<float>(left_.size)));
  return {std::max(all.low, about - allowance), std::min(all.high, about + allowance)};
}

// By a sample of what is left, for any distribution.
Range Selector::GuessBySample(const Range& all, double share) {
  const size_t size = std::min(kSampled, left_.size);
  order_.resize(size);
  double total = 0, squares = 0;
  for (size_t i = 0; i < size; ++i) {
    order_[i] = static_cast<uint32_t>(i * left_.size / size);
    const double weight = left_.weights[order_[i]];
    total += weight;
    squares += weight * weight;
  }
  const FloatArray& keys = left_.keys;
  std::sort(order_.begin(), order_.end(),
            [&](uint32_t a, uint32_t b) { return keys[a] > keys[b]; });
  const double error = 2 * std::sqrt(share * (1 - share) * squares);
  Range range = {all.low, all.high};
  double sum = 0;
  for (size_t i = 0; i < size; ++i) {
    const double before = sum;
    sum += left_.weights[order_[i]];
    if (before < share * total - error) range.high = keys[order_[i]];
    if (sum < share * total + error) continue;
    range.low = keys[order_[i]];
    break;
  }
  if (range.low > all.low || range.high < all.high) return range;
  return {keys[order_[size / 2]], keys[order_[size / 2]]};  // splits them, whatever it says
}

// The end is among the elements found; `above` is the weight of what stands
// before them, `total` with all of them.
Selector::End Selector::Narrow(const Selectable& from, double above, double total, double target) {
  if (from.typicality != nullptr) {
    passes_->typical_keys(logits_.data(), found_, *from.typicality, keys_.data());
  }
  const Row found = found_keys(from);
  std::copy_n(found.logits, found_, left_.keys.data());
  std::copy_n(weights_.data(), found_, left_.weights.data());
  left_.size = found_;
  bool evenly = found_ < kTrustBelow;
  while (left_.size > kSortBelow) {
    const Range all = passes_->extent(left_.keys.data(), left_.size);
    if (all.low == all.high) return EndAmong(found, all.low, above, target);
    const double share = (target - above) / (total - above);
    const Range range = evenly ? GuessEvenly(all, share) : GuessBySample(all, share);
    const size_t before = left_.size;
    const auto split = [&](Range part) {
      const Masses masses =
          passes_->split(left_.row(), {}, nullptr, left_.weights.data(), part, spare_.room());
      spare_.size = masses.found;
      return masses.above;
    };
    const double until_high = above + split(range);
    const double until_low = until_high + MassOf(spare_.row(), {}, spare_.weights.data());
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
    evenly = evenly && left_.size <= before / 2;
  }
  return SortRest(found, above, target);
}

// At one of the elements with this key; those of higher keys weigh `above`.
Selector::End Selector::EndAmong(const Row& keys, float key, double above, double target) {
  passes_->split(keys, {}, nullptr, weights_.data(), {key, key}, {.within = ties_.data()});
  size_t block = 0;
  while (above + ties_[block] < target) above += ties_[block++];
  const Row part = BlockOf(keys, block);
  uint64_t bits[kBlock / kGroup], higher[kBlock / kGroup];
  passes_->mark(part, {key}, nullptr, {}, bits);
  passes_->mark(part, {NextAbove(key)}, nullptr, {}, higher);
  for (size_t i = 0; i < GroupsOf(part.size); ++i) bits[i] &= ~higher[i];
  const size_t begin = block * kBlock;
  const size_t last = Reach(part.size, weights_.data() + begin, bits, above, target);
  return {{key, begin + last}, above};
}

Selector::End Selector::SortRest(const Row& found, double above, double target) {
  const FloatArray& keys = left_.keys;
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
      return all_of_them ? End{{key}, until} : EndAmong(found, key, above, target);
    }
    above = until;
    i = end;
  }
  return {{key}, above};
}

}  // namespace baton::sampling
