// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/sampling/exact_math.h"

namespace baton::sampling {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr size_t kAll = std::numeric_limits<size_t>::max();

}  // namespace

bool Chain::Start(std::span<const float> logits) {
  logits_ = logits;
  ids_.clear();
  weighed_ = has_pending_ = false;
  if (logits.empty()) return false;
  group_max_.resize(GroupsOf(logits.size()));
  if (!passes_->scan(logits.data(), logits.size(), group_max_.data())) return false;
  distribution_ = {*std::max_element(group_max_.begin(), group_max_.end()), 1};
  return true;
}

TokenId Chain::argmax() const {
  const auto group = std::find(group_max_.begin(), group_max_.end(), max()) - group_max_.begin();
  size_t index = static_cast<size_t>(group) * kGroup;
  while (logits_[index] != max()) ++index;
  return IdOf(index);
}

KeyedRow Chain::Row(bool weighted) const {
  if (!weighted) return {logits_, group_max_, {}, {}};
  return {logits_, group_max_, std::span(weights_).first(logits_.size()), group_sums_};
}

void Chain::KeepTopK(size_t k) {
  if (k >= logits_.size()) return;
  const auto size = static_cast<double>(logits_.size());
  Apply(selector_.Select(Row(false), size, static_cast<double>(k)));
}

void Chain::Weigh(float scale) {
  distribution_.scale = scale;
  weights_.resize(std::max(weights_.size(), logits_.size()));
  group_sums_.resize(group_max_.size());
  total_ = passes_->weigh(logits_.data(), logits_.size(), distribution_, weights_.data(),
                          group_sums_.data());
  weighed_ = true;
  if (std::exchange(has_pending_, false)) Apply(pending_);
}

void Chain::KeepTopP(float share) {
  if (share >= 1) return;
  Apply(selector_.Select(Row(true), total_, share * total_));
}

void Chain::KeepMinP(float share) {
  if (share <= 0) return;
  const double distance = ExactLog(share) / distribution_.scale;
  Apply({static_cast<float>(std::max<double>(max() + distance, -kFloatMax)), kAll});
}

void Chain::KeepTypical(float share) {
  if (share >= 1) return;
  const size_t size = logits_.size();
  const double surprise = passes_->surprise(logits_.data(), weights_.data(), size, distribution_);
  keys_.resize(std::max(keys_.size(), size));
  key_max_.resize(group_max_.size());
  passes_->typicality(logits_.data(), size, distribution_, static_cast<float>(surprise / total_),
                      keys_.data(), key_max_.data());
  const KeyedRow row = {std::span(keys_).first(size), key_max_, Row(true).weights, group_sums_};
  const Prefix prefix = selector_.Select(row, total_, share * total_);
  total_ = passes_->cut(keys_.data(), size, prefix.key, prefix.last, weights_.data(),
                        group_sums_.data());
}

void Chain::Apply(const Prefix& prefix) {
  size_t groups = 0;
  for (float best : group_max_) groups += best >= prefix.key ? 1 : 0;
  if (groups <= group_max_.size() / 8) return Shrink(prefix);
  if (!weighed_) {
    pending_ = prefix;
    has_pending_ = true;
    return;
  }
  total_ = passes_->cut(logits_.data(), logits_.size(), prefix.key, prefix.last, weights_.data(),
                        group_sums_.data());
}

// Goes on with the few tokens that are held.
void Chain::Shrink(const Prefix& prefix) {
  spare_.clear();
  spare_ids_.clear();
  size_t kept_weights = 0;
  for (size_t group = 0; group < group_max_.size(); ++group) {
    if (group_max_[group] < prefix.key) continue;
    const size_t end = std::min((group + 1) * kGroup, logits_.size());
    for (size_t i = group * kGroup; i < end; ++i) {
      if (!prefix.Holds(logits_[i], i) || (weighed_ && weights_[i] == 0)) continue;
      spare_.push_back(logits_[i]);
      spare_ids_.push_back(IdOf(i));
      if (weighed_) weights_[kept_weights++] = weights_[i];
    }
  }
  std::swap(own_logits_, spare_);
  std::swap(ids_, spare_ids_);
  logits_ = own_logits_;
  group_max_.resize(GroupsOf(logits_.size()));
  passes_->scan(logits_.data(), logits_.size(), group_max_.data());
  if (!weighed_) return;
  group_sums_.resize(group_max_.size());
  total_ = passes_->cut(logits_.data(), logits_.size(), -kFloatMax, kAll, weights_.data(),
                        group_sums_.data());
}

TokenId Chain::Draw(double uniform) const {
  // Below the total also after rounding.
  const double point = std::min(uniform * total_, std::nextafter(total_, 0.0));
  double sum = 0;
  size_t group = 0;
  while (sum + group_sums_[group] <= point) sum += group_sums_[group++];
  size_t index = group * kGroup;
  while ((sum += weights_[index]) <= point) ++index;
  return IdOf(index);
}

double Chain::LogProbability(float logit) const {
  return (static_cast<double>(logit) - max()) - ExactLog(total_);
}

std::vector<KeptToken> Chain::Kept(size_t limit) const {
  std::vector<KeptToken> kept;
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (has_pending_ && !pending_.Holds(logits_[i], i)) continue;
    if (weighed_ && weights_[i] == 0) continue;
    kept.push_back({IdOf(i), logits_[i], weighed_ ? weights_[i] : 0});
  }
  const auto better = [](const KeptToken& a, const KeptToken& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  limit = std::min(limit, kept.size());
  std::partial_sort(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(limit), kept.end(),
                    better);
  kept.resize(limit);
  return kept;
}

}  // namespace baton::sampling
