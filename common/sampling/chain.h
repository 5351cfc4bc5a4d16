// SPDX-License-Identifier: Apache-2.0
// The steps of sampling that keep some of a row's tokens, and the draw.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "common/base/types.h"
#include "common/sampling/row_passes.h"
#include "common/sampling/selector.h"

namespace baton::sampling {

struct KeptToken {
  TokenId id = 0;
  float logit = 0;
  double weight = 0;  // unnormalized; 0 before Weigh
};

// One row on its way through the chain: Start, then KeepTopK, Weigh, and the
// other steps in any order. Where a step keeps few tokens the rest works on
// these alone. Equal logits are ordered by id, lower first.
//
// Thread safety: none. Buffers are kept from row to row.
class Chain final {
 public:
  explicit Chain(const RowPasses* passes = &BestRowPasses()) : passes_(passes), selector_(passes) {}

  // False, and unusable, when the row is empty or holds NaN or infinity.
  // `logits` must outlive the use of the chain.
  bool Start(std::span<const float> logits);

  float max() const { return distribution_.max; }
  TokenId argmax() const;  // the lowest id that has the maximum

  // The k best. REQUIRES: k >= 1.
  void KeepTopK(size_t k);
  // Weights are exp((logit - max) * scale); what follows needs them.
  void Weigh(float scale);
  // The shortest prefix of the best that holds `share` of the weight.
  void KeepTopP(float share);
  // Tokens of at least `share` times the probability of the best.
  void KeepMinP(float share);
  // The shortest prefix of the most typical that holds `share` of the weight:
  // those whose surprise is nearest to its mean (Meister et al., 2022,
  // "Locally Typical Sampling"), equally near ones by id.
  void KeepTypical(float share);
  // The first token, by id, at which the running sum of the weights exceeds
  // `uniform`, in [0, 1), of their total.
  TokenId Draw(double uniform) const;

  double total() const { return total_; }
  // Logarithm of a token's probability, from the whole row's weights.
  // REQUIRES: Weigh(1) was called and nothing was dropped.
  double LogProbability(float logit) const;
  // What is left, best first; at most `limit` of it.
  std::vector<KeptToken> Kept(size_t limit) const;

 private:
  KeyedRow Row(bool weighted) const;
  TokenId IdOf(size_t index) const {
    return ids_.empty() ? static_cast<TokenId>(index) : ids_[index];
  }
  // Drops what `prefix` of the logits does not hold.
  void Apply(const Prefix& prefix);
  void Shrink(const Prefix& prefix);

  const RowPasses* const passes_;
  Selector selector_;
  std::span<const float> logits_;
  std::vector<TokenId> ids_;  // of a row that was cut out of another; else empty
  std::vector<float> group_max_;
  Distribution distribution_;
  bool weighed_ = false;
  Prefix pending_;  // of the logits, to be applied when there are weights
  bool has_pending_ = false;
  std::vector<float> weights_;  // 0: dropped
  std::vector<double> group_sums_;
  double total_ = 0;

  std::vector<float> own_logits_, spare_, keys_, key_max_;
  std::vector<TokenId> spare_ids_;
};

}  // namespace baton::sampling
