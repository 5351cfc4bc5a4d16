// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace baton::sampling {
namespace {

constexpr size_t kSmallRow = 1024;    // is looked at whole
constexpr size_t kHeadGroups = 128;   // whose best elements are looked at first
constexpr double kHeadWeight = 1024;  // more than those usually have
constexpr size_t kSample = 1536;      // about this many elements guide a guess
constexpr size_t kSortBelow = 96;
constexpr float kErrors = 3;  // standard errors that a guess allows for
constexpr int kMostGuesses = 8;
constexpr float kFloatMax = std::numeric_limits<float>::max();

float NextAbove(float key) { return std::nextafter(key, kFloatMax); }
float NextBelow(float key) { return std::nextafter(key, -kFloatMax); }

// Calls body(index) for each bit, in order.
template <typename Body>
void ForEachBit(uint64_t bits, size_t first, Body body) {
  for (; bits != 0; bits &= bits - 1) body(first + static_cast<size_t>(std::countr_zero(bits)));
}

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

}  // namespace

void Selector::Candidates::Reserve(size_t most) {
  size = 0;
  if (most <= keys.size()) return;
  keys.resize(most);
  weights.resize(most);
  indices.resize(most);
}

Prefix Selector::Select(const KeyedRow& row, double total, double target) {
  const size_t size = row.keys.size();
  if (target > total) return {-kFloatMax, size};
  found_.Reserve(size);
  bits_.resize(std::max(bits_.size(), GroupsOf(size)));
  spare_bits_.resize(bits_.size());
  if (size <= kSmallRow) {
    for (size_t i = 0; i < size; ++i) {
      found_.Push(row.keys[i], row.weights.empty() ? 1 : row.weights[i], i);
    }
    return Narrow(0, total, target);
  }
  // The few best are enough for most rows that a model makes; not where their
  // weights, at most 1 each, cannot be.
  if (target <= kHeadWeight) {
    const float bound = GroupBound(row.group_max, std::min(kHeadGroups, row.group_max.size() / 4));
    if (GatherHead(row, bound)) {
      const double head = SumFound();
      if (head >= target) return Narrow(0, head, target);
      return SelectBelow(row, NextBelow(bound), head, total, target);
    }
  }
  return SelectBelow(row, kFloatMax, 0, total, target);
}

float Selector::GroupBound(std::span<const float> group_max, size_t groups) {
  const auto [least, most] = std::minmax_element(group_max.begin(), group_max.end());
  float low = *least, high = *most;
  for (int i = 0; i < 12 && low < high; ++i) {
    const float middle = low + (high - low) / 2;
    const double reach = passes_->split(group_max.data(), nullptr, group_max.size(), kFloatMax,
                                        NextBelow(middle), bits_.data());
    if (middle == low || middle == high) break;
    (reach >= static_cast<double>(groups) ? low : high) = middle;
  }
  return low;
}

bool Selector::GatherHead(const KeyedRow& row, float bound) {
  size_t groups = 0;
  for (float best : row.group_max) groups += best >= bound ? 1 : 0;
  if (groups > 4 * kHeadGroups) return false;
  const size_t size = row.keys.size();
  for (size_t group = 0; group < row.group_max.size(); ++group) {
    if (row.group_max[group] < bound) continue;
    const size_t first = group * kGroup;
    uint64_t bits = 0;
    passes_->split(row.keys.data() + first, nullptr, std::min(kGroup, size - first), bound,
                   kFloatMax, &bits);
    ForEachBit(bits, first, [&](size_t i) {
      found_.Push(row.keys[i], row.weights.empty() ? 1 : row.weights[i], i);
    });
  }
  return true;
}

double Selector::SumFound() {
  return passes_->split(found_.keys.data(), found_.weights.data(), found_.size, kFloatMax,
                        -kFloatMax, spare_bits_.data());
}

// Takes every so many-th element that is not above the ceiling and can matter.
void Selector::TakeSample(std::span<const float> keys, std::span<const float> weights,
                          float ceiling) {
  const size_t stride = std::max<size_t>(1, keys.size() / kSample);
  sample_.resize(keys.size() / stride + 1);
  sampled_ = 0;
  for (size_t i = stride / 2; i < keys.size(); i += stride) {
    const float weight = weights.empty() ? 1 : weights[i];
    sample_[sampled_] = {keys[i], weight};
    sampled_ += int{keys[i] <= ceiling} & int{keys[i] != -kFloatMax} & int{weight != 0};
  }
}

Selector::Range Selector::Guess(std::span<const float> keys, std::span<const float> weights,
                                float ceiling, double above, double total, double target) {
  TakeSample(keys, weights, ceiling);
  if (sampled_ == 0) return {-kFloatMax, ceiling};
  const auto sample = std::span(sample_).first(sampled_);
  float least = sample[0].key, most = sample[0].key, sum = 0;
  for (const Sampled& one : sample) {
    least = std::min(least, one.key);
    most = std::max(most, one.key);
    sum += one.weight;
  }
  if (least == most) return {least, most};
  const float width = (most - least) / (kBuckets - 1);
  const float per_width = 1 / width;
  if (!(width > 0) || !(per_width <= kFloatMax) || !(width <= kFloatMax)) {
    return {-kFloatMax, ceiling};
  }
  buckets_.fill({});
  for (const Sampled& one : sample) {
    Bucket& bucket =
        buckets_[std::min(kBuckets - 1, static_cast<size_t>((most - one.key) * per_width))];
    bucket.weight += one.weight;
    bucket.squares += one.weight * one.weight;
  }
  // In the sample's own units: it stands for all that is not above the ceiling.
  const auto wanted = static_cast<float>((target - above) / (total - above) * sum);
  const float error = ErrorOf(wanted, sum) + sum / static_cast<float>(sampled_);
  Range range{-kFloatMax, ceiling};
  float reached = 0;
  size_t first = kBuckets, last = kBuckets;  // of the range
  for (size_t bucket = 0; bucket < kBuckets && last == kBuckets; ++bucket) {
    reached += buckets_[bucket].weight;
    if (first == kBuckets && reached >= wanted - error) first = bucket;
    if (reached >= wanted + error) last = bucket;
  }
  if (first > 0 && first < kBuckets) range.high = most - width * static_cast<float>(first);
  if (last < kBuckets) range.low = most - width * static_cast<float>(last + 1);
  range.high = std::min(range.high, ceiling);
  range.low = std::min(range.low, range.high);
  return last - first <= 1 ? TiesIn(range) : range;
}

// Allowance for a sample's being a sample, from the weights on both sides.
float Selector::ErrorOf(float wanted, float sum) const {
  float reached = 0, before = 0, after = 0;
  for (const Bucket& bucket : buckets_) {
    (reached < wanted ? before : after) += bucket.squares;
    reached += bucket.weight;
  }
  const float share = std::clamp(wanted / sum, 0.0f, 1.0f);
  return kErrors * std::sqrt((1 - share) * (1 - share) * before + share * share * after);
}

// Where the sample knows one key alone, that is the guess: many may be equal.
Selector::Range Selector::TiesIn(const Range& range) const {
  float least = kFloatMax, most = -kFloatMax;
  for (const Sampled& one : std::span(sample_).first(sampled_)) {
    if (one.key < range.low || one.key > range.high) continue;
    least = std::min(least, one.key);
    most = std::max(most, one.key);
  }
  return least == most ? Range{least, most} : range;
}

// The end is among the keys <= ceiling; those above it weigh `above`.
Prefix Selector::SelectBelow(const KeyedRow& row, float ceiling, double above, double total,
                             double target) {
  const float* weights = row.weights.empty() ? nullptr : row.weights.data();
  const auto weight_above = [&](float low, float high) {
    return passes_->split(row.keys.data(), weights, row.keys.size(), low, high, bits_.data());
  };
  for (int guesses = 0;; ++guesses) {
    Range range{-kFloatMax, ceiling};
    if (guesses < kMostGuesses) {
      range = Guess(row.keys, row.weights, ceiling, above, total, target);
    }
    double until_high = weight_above(range.low, range.high);
    if (until_high >= target) {  // the end lies higher
      range = {NextAbove(range.high), ceiling};
      until_high = weight_above(range.low, range.high);
    }
    double until_low = 0;
    if (range.low == range.high) {
      until_low = passes_->split(row.keys.data(), weights, row.keys.size(), range.low,
                                 NextBelow(range.low), spare_bits_.data());
      if (until_low >= target || range.low == -kFloatMax) {
        return WalkTies(row, range.low, until_high, target);
      }
    } else {
      Collect(row);
      until_low = until_high + SumFound();
      if (until_low >= target || range.low == -kFloatMax) {
        return Narrow(until_high, until_low, target);
      }
    }
    ceiling = NextBelow(range.low);  // the end lies lower
    above = until_low;
  }
}

// The elements between the two keys.
void Selector::Collect(const KeyedRow& row) {
  found_.size = 0;
  for (size_t group = 0; group < row.group_max.size(); ++group) {
    ForEachBit(bits_[group], group * kGroup, [&](size_t i) {
      found_.Push(row.keys[i], row.weights.empty() ? 1 : row.weights[i], i);
    });
  }
}

// Elements of equal keys, by index; those above weigh `sum`. Groups whose
// elements are all of this key are passed over by their sums.
Prefix Selector::WalkTies(const KeyedRow& row, float key, double sum, double target) const {
  size_t last = 0;
  for (size_t group = 0; group < row.group_max.size(); ++group) {
    if (bits_[group] == ~uint64_t{0}) {
      const double whole = row.weights.empty() ? double{kGroup} : row.group_sums[group];
      if (sum + whole < target) {
        sum += whole;
        continue;
      }
    }
    bool reached = false;
    ForEachBit(bits_[group], group * kGroup, [&](size_t i) {
      if (reached) return;
      sum += row.weights.empty() ? 1 : row.weights[i];
      last = i;
      reached = sum >= target;
    });
    if (reached) break;
  }
  return {key, last};
}

// The end is among the elements found; `above` is the weight of what stands
// before them, `total` with all of them.
Prefix Selector::Narrow(double above, double total, double target) {
  size_t before = 0;
  while (found_.size > kSortBelow) {
    const std::span<const float> keys = found_.Keys();
    Range range = Guess(keys, found_.Weights(), kFloatMax, above, total, target);
    if (before != 0 && found_.size > before - before / 4) {  // too slow: halve
      const auto [least, most] = std::minmax_element(keys.begin(), keys.end());
      if (*least == *most) break;
      range = {*least, Middle(*least, *most)};
    }
    before = found_.size;
    const auto weight_above = [&](float low, float high) {
      return above + passes_->split(keys.data(), found_.weights.data(), keys.size(), low, high,
                                    bits_.data());
    };
    const double until_low = weight_above(kFloatMax, NextBelow(range.low));
    const double until_high = weight_above(range.low, range.high);
    if (until_high >= target) {
      total = until_high;
      weight_above(NextAbove(range.high), kFloatMax);
    } else if (until_low >= target || range.low == -kFloatMax) {
      above = until_high;
      total = until_low;
    } else {
      weight_above(-kFloatMax, NextBelow(range.low));
      above = until_low;
    }
    KeepBits();
  }
  return SortRest(above, target);
}

void Selector::KeepBits() {
  size_t kept = 0;
  for (size_t group = 0; group < GroupsOf(found_.size); ++group) {
    ForEachBit(bits_[group], group * kGroup, [&](size_t i) {
      found_.keys[kept] = found_.keys[i];
      found_.weights[kept] = found_.weights[i];
      found_.indices[kept++] = found_.indices[i];
    });
  }
  found_.size = kept;
}

Prefix Selector::SortRest(double above, double target) {
  order_.resize(found_.size);
  std::iota(order_.begin(), order_.end(), 0u);
  const auto better = [&](uint32_t a, uint32_t b) {
    return found_.keys[a] > found_.keys[b] || (found_.keys[a] == found_.keys[b] && a < b);
  };
  // Many are left only when they are all equal, and then in order.
  if (!std::is_sorted(order_.begin(), order_.end(), better)) {
    std::sort(order_.begin(), order_.end(), better);
  }
  Prefix prefix{-kFloatMax, std::numeric_limits<size_t>::max()};
  for (uint32_t i : order_) {
    above += found_.weights[i];
    prefix = {found_.keys[i], found_.indices[i]};
    if (above >= target) break;
  }
  return prefix;
}

}  // namespace baton::sampling
