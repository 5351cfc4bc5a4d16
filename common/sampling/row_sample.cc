// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/row_sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

constexpr size_t kRest = 1536;       // about this many of the elements that are not the best,
constexpr size_t kNeighbors = 4;     // so many from one place
constexpr size_t kHeadGroups = 128;  // whose best elements are looked at one by one
constexpr size_t kFewestGroups = 32;
constexpr size_t kSmallRow = 512;  // has no sample: all of it is collected at once
constexpr size_t kMostHead = 2048;
constexpr float kErrors = 3;        // standard errors that a guess allows for
constexpr float kNothing = 26;      // e^-26 is below the grid of the weights
constexpr float kMany = 0.2f;       // share of the weight that may be of one key
constexpr size_t kFewestTies = 16;  // one may lead by far
constexpr int kSampleRounds = 4;    // of five parts each
constexpr float kCoarse = 0.02f;    // share of the weight that such a part may have
constexpr int kSnaps = 2;           // before a part that has more is taken as it is

}  // namespace

void RowSample::Start(const Row& row) {
  row_ = row;
  size_ = head_ = 0;
  head_bound_ = kInfinity;
  has_rest_ = false;
  const size_t groups = GroupsOf(row.size);
  const size_t room = (GroupsOf(std::max(row.size, kMostHead + 2 * kRest)) + 1) * kGroup;
  if (logits_.size() < room) {
    for (FloatArray* array :
         {&logits_, &counts_, &masses_, &squares_, &keys_, &near_, &near_masses_}) {
      array->resize(room);
    }
  }
  if (ones_.size() < groups * kGroup) ones_.resize(groups * kGroup, 1);
  if (groups >= kFewestGroups) TakeHead();
}

// A key that at least `groups` groups reach, and seldom many more.
float RowSample::GroupBound(size_t groups) {
  const size_t size = GroupsOf(row_.size);
  Range all = passes_->extent(row_.group_max, size);
  if (all.low == -kFloatMax) {  // banned tokens alone
    all.low = all.high;
    for (size_t i = 0; i < size; ++i) {
      const float best = row_.group_max[i];
      all.low = best == -kFloatMax ? all.low : std::min(all.low, best);
    }
  }
  return Bisect(row_.group_max, ones_.data(), size, static_cast<float>(groups), all,
                kSampleRounds - 1)
      .low;
}

void RowSample::TakeHead() {
  const float bound = GroupBound(std::min(kHeadGroups, GroupsOf(row_.size) / 4));
  size_t groups = 0;
  for (size_t i = 0; i < GroupsOf(row_.size); ++i) groups += row_.group_max[i] >= bound ? 1 : 0;
  if (groups > 2 * kHeadGroups) return;  // many are equal
  const size_t found = passes_
                           ->split(row_, {bound}, nullptr, nullptr, {bound, kInfinity},
                                   {.logits = logits_.data(), .weights = counts_.data()})
                           .found;
  if (found > kMostHead) return;
  head_bound_ = bound;
  size_ = head_ = found;
}

void RowSample::TakeRest() {
  if (has_rest_ || row_.size <= kSmallRow) return;
  has_rest_ = true;
  const size_t stride = std::max(kNeighbors, row_.size * kNeighbors / kRest);
  const size_t first = size_;
  for (size_t i = 0; i + kNeighbors <= row_.size; i += stride) {
    std::memcpy(logits_.data() + size_, row_.logits + i, kNeighbors * sizeof(float));
    size_ += kNeighbors;
  }
  if (size_ == first) return;
  const float each = static_cast<float>(row_.size) / static_cast<float>(size_ - first);
  for (size_t i = first; i < size_; ++i) {
    counts_[i] = logits_[i] < head_bound_ && logits_[i] != -kFloatMax ? each : 0;
  }
}

Range RowSample::GuessCount(size_t count) {
  if (count > head_) TakeRest();
  if (size_ == 0) return {};
  const auto wanted = static_cast<float>(count);
  if (count <= head_) {  // exact
    const Range all = {head_bound_, passes_->extent(logits_.data(), head_).high};
    return Bisect(logits_.data(), counts_.data(), head_, wanted, all, 2 * kSampleRounds);
  }
  std::copy_n(counts_.data(), size_, masses_.data());
  for (size_t i = 0; i < size_; ++i) squares_[i] = i < head_ ? 0 : counts_[i] * counts_[i];
  return Enclose(logits_.data(), wanted / static_cast<float>(row_.size),
                 std::nextafter(-kFloatMax, 0.0f));
}

void RowSample::Weigh(Distribution distribution, float floor) {
  if (floor < head_bound_) TakeRest();
  if (size_ == 0) return;
  passes_->weigh({logits_.data(), size_, nullptr}, {}, distribution, {kInfinity, kInfinity}, false,
                 masses_.data(), {});
  for (size_t i = 0; i < size_; ++i) masses_[i] *= counts_[i];
  for (size_t i = 0; i < size_; ++i) squares_[i] = i < head_ ? 0 : masses_[i] * masses_[i];
  floor_ = distribution.max - kNothing / distribution.scale;
  if (floor > floor_) Restrict(floor);
}

void RowSample::Restrict(float floor) {
  floor_ = std::max(floor_, floor);
  for (size_t i = 0; i < size_; ++i) {
    masses_[i] = logits_[i] >= floor ? masses_[i] : 0;
    squares_[i] = logits_[i] >= floor ? squares_[i] : 0;
  }
}

Range RowSample::Guess(double share, const Typicality* typicality) {
  if (size_ == 0) return {};
  if (typicality == nullptr) return Enclose(logits_.data(), static_cast<float>(share), floor_);
  passes_->typical_keys(logits_.data(), size_, *typicality, keys_.data());
  return Enclose(keys_.data(), static_cast<float>(share), -kNothing);
}

// At least `wanted` lies above the low end, less above the high one. `inside`
// gets the masses between, the high end among them.
Range RowSample::Bisect(const float* keys, const float* masses, size_t size, float wanted,
                        Range between, int rounds, float* inside) const {
  constexpr int kBounds = 4;
  for (int round = 0; round < rounds; ++round) {
    const float step = between.high / (kBounds + 1) - between.low / (kBounds + 1);
    float bounds[kBounds + 2] = {between.low}, above[kBounds + 2] = {kInfinity};
    for (int k = 1; k <= kBounds; ++k) bounds[k] = between.low + static_cast<float>(k) * step;
    bounds[kBounds + 1] = between.high;
    if (!(bounds[1] > between.low && bounds[kBounds] < between.high)) break;
    passes_->about_above(keys, masses, size, bounds + 1, above + 1);
    int part = 0;
    while (part < kBounds && above[part + 1] >= wanted) ++part;
    between = {bounds[part], bounds[part + 1]};
    if (inside != nullptr) *inside = above[part] - (part < kBounds ? above[part + 1] : 0);
  }
  return between;
}

// The least and the greatest key with a mass in the range, where there are some;
// else an empty range.
Range RowSample::KeysIn(const float* keys, const Range& range) {
  const size_t found = passes_
                           ->split({keys, size_, nullptr}, {}, nullptr, masses_.data(), range,
                                   {.logits = near_.data(), .weights = near_masses_.data()})
                           .found;
  size_t count = 0, any = 0;
  for (size_t i = 0; i < found; ++i) count += near_masses_[i] > 0 ? 1 : 0;
  if (count < kFewestTies) return {kInfinity, -kInfinity};
  while (!(near_masses_[any] > 0)) ++any;
  const float other = near_[any];
  for (size_t i = 0; i < found; ++i) near_[i] = near_masses_[i] > 0 ? near_[i] : other;
  return passes_->extent(near_.data(), found);
}

// Where much still lies between, keys lie closer together than the ends that were
// begun with, or many are equal.
Range RowSample::BisectToKeys(const float* keys, float wanted, Range between, float much) {
  float inside = kInfinity;
  between = Bisect(keys, masses_.data(), size_, wanted, between, kSampleRounds, &inside);
  for (int again = 0; again < kSnaps && inside > much; ++again) {
    const Range held = KeysIn(keys, {std::nextafter(between.low, kInfinity), between.high});
    if (held.low > held.high) break;
    between = {std::nextafter(held.low, -kInfinity), held.high};
    if (held.low == held.high) break;
    between = Bisect(keys, masses_.data(), size_, wanted, between, kSampleRounds, &inside);
  }
  return between;
}

// `least`: keys below it have no mass.
Range RowSample::Enclose(const float* keys, float share, float least) {
  Range all = passes_->extent(keys, size_);
  all.low = std::max(all.low, least);
  if (!(all.low < all.high)) return all.low == all.high ? all : Range{};
  const float* masses = masses_.data();
  const float everything[4] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  float total[4], squares[4];
  passes_->about_above(keys, masses, size_, everything, total);
  const float wanted = share * total[0];
  const Range middle = Bisect(keys, masses, size_, wanted, all, 2);
  // A sample's error, from the weights on both sides.
  const float border[4] = {middle.low, -kInfinity, -kInfinity, -kInfinity};
  passes_->about_above(keys, squares_.data(), size_, border, squares);
  const float before = squares[0], after = squares[1] - squares[0];
  const float rest = static_cast<float>(size_ - head_) + 1;
  const float error = kErrors * std::sqrt((1 - share) * (1 - share) * before +
                                          share * share * after + squares[1] / rest);
  const float much = kCoarse * total[0];
  Range range = {least, kInfinity};
  if (wanted > error) {
    range.high = BisectToKeys(keys, wanted - error, {middle.low, all.high}, much).high;
  }
  if (wanted + error < total[0]) {
    range.low = BisectToKeys(keys, wanted + error, {all.low, middle.high}, much).low;
    range.low = range.low == all.low ? least : std::nextafter(range.low, kInfinity);
  }
  range.low = std::min(range.low, range.high);
  return range.low == range.high ? range : TiesIn(keys, range, kMany * total[0]);
}

// Where the sample knows a single key that weighs much, that is the guess: many
// may be equal.
Range RowSample::TiesIn(const float* keys, const Range& range, float much) {
  const float bounds[4] = {std::nextafter(range.low, -kInfinity), range.high, range.high,
                           range.high};
  float above[4];
  passes_->about_above(keys, masses_.data(), size_, bounds, above);
  if (!(above[0] - above[1] > much)) return range;
  const Range held = KeysIn(keys, range);
  return held.low == held.high ? held : range;
}

}  // namespace baton::sampling
