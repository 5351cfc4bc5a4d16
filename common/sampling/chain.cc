// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/chain.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/sampling/exact_math.h"
#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

// What both prefixes of one order hold.
Prefix Shorter(const Prefix& a, const Prefix& b) {
  if (a.key != b.key) return a.key > b.key ? a : b;
  return {a.key, std::min(a.last, b.last)};
}

Prefix MinPBound(float share, const Distribution& distribution) {
  if (share <= 0) return {};
  const double distance = ExactLog(share) / distribution.scale;
  return {static_cast<float>(std::max<double>(distribution.max + distance, -kFloatMax))};
}

}  // namespace

absl::Status NotFinite() {
  return absl::InternalError("the model gave a logit that is NaN or infinite");
}

bool Chain::Start(std::span<const float> logits) {
  logits_ = logits;
  prefix_ = {};
  is_typical_ = false;
  if (logits.empty()) return false;
  group_max_.resize(GroupsOf(logits.size()));
  if (!passes_->scan(logits.data(), logits.size(), group_max_.data())) return false;
  distribution_ = {passes_->extent(group_max_.data(), group_max_.size()).high, 1};
  return true;
}

TokenId Chain::argmax() const {
  const auto group = std::find(group_max_.begin(), group_max_.end(), max()) - group_max_.begin();
  size_t index = static_cast<size_t>(group) * kGroup;
  while (logits_[index] != max()) ++index;
  return static_cast<TokenId>(index);
}

double Chain::LogMass() const { return ExactLog(passes_->mass(TheRow(), {max(), 1})); }

std::vector<KeptToken> Chain::Best(size_t k) {
  if (k == 0) return {};
  prefix_ = {};
  is_typical_ = false;
  sample_.Start(TheRow());
  KeepTopK(k);
  return Marked(false);
}

void Chain::Keep(const Cuts& cuts) {
  distribution_.scale = cuts.scale;
  prefix_ = {};
  is_typical_ = false;
  if (cuts.top_k > 0 || cuts.top_p < 1 || cuts.typical_p < 1) sample_.Start(TheRow());
  KeepTopK(cuts.top_k);
  WeighAndKeepBest(cuts);
  if (cuts.typical_p < 1) KeepTypical(cuts.typical_p);
  SumBlocks();
}

void Chain::KeepTopK(size_t k) {
  if (k == 0 || k >= logits_.size()) return;
  prefix_ = selector_.Select({TheRow()}, sample_.GuessCount(k), static_cast<double>(k)).prefix;
}

// Weights, top-p and min-p.
void Chain::WeighAndKeepBest(const Cuts& cuts) {
  weights_.resize(std::max(weights_.size(), group_max_.size() * kGroup));
  block_sums_.resize(BlocksOf(logits_.size()));
  const bool top_p = cuts.top_p < 1, typical = cuts.typical_p < 1;
  const Prefix min_p = MinPBound(cuts.min_p, distribution_);
  Range range = kAllIsAbove;
  if (top_p || typical) sample_.Weigh(distribution_, prefix_.key);
  if (top_p) range = sample_.Guess(cuts.top_p, nullptr);
  // Where min-p most likely keeps less than top-p, or is alone, the border is
  // its bound.
  const bool min_p_first = min_p.key > range.high;
  if (min_p_first) range = {kInfinity, std::nextafter(min_p.key, -kInfinity)};
  // Where few groups are left, looking at them again is cheaper.
  const float least = std::min(range.low, std::nextafter(range.high, kInfinity));
  const bool describe = typical && ReachedBy(least) > group_max_.size() / 8;
  const Masses masses = passes_->weigh(TheRow(), prefix_, distribution_, range, describe,
                                       weights_.data(), selector_.RoomFor(logits_.size(), range));
  const double target = cuts.top_p * masses.total;
  const Selectable all = {TheRow(), prefix_, nullptr, weights_.data()};
  summed_ = !top_p || (min_p_first && masses.above < target);
  if (summed_) {  // what is above the range is what is kept
    prefix_ = Shorter(prefix_, min_p);
    mass_ = masses.above;
    surprise_ = describe || !typical
                    ? masses.surprise
                    : passes_->surprise(TheRow(), prefix_, weights_.data(), distribution_);
    std::copy_n(selector_.above(), block_sums_.size(), block_sums_.begin());
    return;
  }
  const Selection selection = selector_.SelectFrom(all, range, masses, target);
  prefix_ = Shorter(prefix_, Shorter(selection.prefix, min_p));
  const Prefix in_found = Shorter(selection.in_found, min_p);
  if (typical) return Describe(all, in_found, describe && selection.from_first ? &masses : nullptr);
  summed_ = selection.in_range && selector_.BlockMasses(all, in_found, block_sums_.data());
}

// Mass and surprise of what is kept. `above` is what the pass said of the logits
// above those that were found; null: of others.
void Chain::Describe(const Selectable& all, const Prefix& in_found, const Masses* above) {
  if (above != nullptr) {
    const Masses rest = selector_.InRange(all, in_found, distribution_);
    mass_ = above->above + rest.total;
    surprise_ = above->surprise + rest.surprise;
    return;
  }
  mass_ = passes_->split(TheRow(), prefix_, nullptr, weights_.data(), kAllIsAbove, {}).above;
  surprise_ = passes_->surprise(TheRow(), prefix_, weights_.data(), distribution_);
}

// How many groups have such logits.
size_t Chain::ReachedBy(float least) const {
  size_t groups = 0;
  for (const float best : group_max_) groups += best >= least ? 1 : 0;
  return groups;
}

void Chain::KeepTypical(float share) {
  typicality_ = {distribution_, static_cast<float>(surprise_ / mass_)};
  is_typical_ = true;
  sample_.Restrict(prefix_.key);
  const Selectable all = {TheRow(), prefix_, &typicality_, weights_.data()};
  const Selection selection =
      selector_.Select(all, sample_.Guess(share, &typicality_), share * mass_);
  typical_ = selection.prefix;
  summed_ =
      selection.in_range && selector_.BlockMasses(all, selection.in_found, block_sums_.data());
}

void Chain::SumBlocks() {
  total_ = 0;
  uint64_t bits[kBlock / kGroup];
  double sums[kBlock / kGroup];
  for (size_t block = 0; block < block_sums_.size(); ++block) {
    if (!summed_) {
      const Row row = BlockOf(TheRow(), block);
      passes_->mark(row, BlockOf(prefix_, block), typicality(), BlockOf(typical_, block), bits);
      block_sums_[block] = passes_->sum(weights_.data() + block * kBlock, row.size, bits, sums);
    }
    total_ += block_sums_[block];
  }
}

TokenId Chain::Draw(double uniform) const {
  // Below the total also after rounding.
  const double point = std::min(uniform * total_, std::nextafter(total_, 0.0));
  double sum = 0;
  size_t block = 0;
  while (sum + block_sums_[block] <= point) sum += block_sums_[block++];
  uint64_t kept[kBlock / kGroup];
  double sums[kBlock / kGroup];
  const Row row = BlockOf(TheRow(), block);
  const float* weights = weights_.data() + block * kBlock;
  passes_->mark(row, BlockOf(prefix_, block), typicality(), BlockOf(typical_, block), kept);
  passes_->sum(weights, row.size, kept, sums);
  size_t group = 0;
  while (sum + sums[group] <= point) sum += sums[group++];
  uint64_t bits = kept[group];
  for (;; bits &= bits - 1) {
    const auto index = static_cast<size_t>(std::countr_zero(bits)) + group * kGroup;
    sum += weights[index];
    if (sum > point) return static_cast<TokenId>(block * kBlock + index);
  }
}

std::vector<KeptToken> Chain::Kept() const { return Marked(true); }

std::vector<KeptToken> Chain::Marked(bool weighed) const {
  std::vector<uint64_t> marked(group_max_.size());
  passes_->mark(TheRow(), prefix_, typicality(), typical_, marked.data());
  std::vector<KeptToken> kept;
  for (size_t group = 0; group < marked.size(); ++group) {
    for (uint64_t bits = marked[group]; bits != 0; bits &= bits - 1) {
      const size_t i = group * kGroup + static_cast<size_t>(std::countr_zero(bits));
      if (weighed && weights_[i] == 0) continue;
      kept.push_back({static_cast<TokenId>(i), logits_[i], weighed ? weights_[i] : 0});
    }
  }
  std::sort(kept.begin(), kept.end(), [](const KeptToken& a, const KeptToken& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
  return kept;
}

}  // namespace baton::sampling
