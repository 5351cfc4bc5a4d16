// SPDX-License-Identifier: Apache-2.0
// The steps of sampling that keep some of a row's tokens, and the draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"
#include "common/sampling/row_passes.h"
#include "common/sampling/row_sample.h"
#include "common/sampling/selector.h"

namespace baton::sampling {

struct KeptToken {
  TokenId id = 0;
  float logit = 0;
  double weight = 0;  // unnormalized; 0 where there are no weights
};

// What is to be kept, in the order of the fields.
struct Cuts {
  size_t top_k = 0;  // the k best; 0: all
  // Weights are exp((logit - max) * scale); what follows needs them.
  float scale = 1;
  float top_p = 1;  // the shortest prefix of the best that holds this share of the weight
  float min_p = 0;  // tokens of at least this times the probability of the best
  // The shortest prefix of the most typical that holds this share of the
  // weight: those whose surprise is nearest to its mean (Meister et al., 2022,
  // "Locally Typical Sampling"), equally near ones by id.
  float typical_p = 1;
};

// What a request ends with when Chain::Start refuses its row.
absl::Status NotFinite();

// One row on its way through the chain: Start, then Keep, then what is asked
// for. Equal logits are ordered by id, lower first.
//
// How: top-k, top-p and min-p keep prefixes of one order, so that together they
// are one bound. A sample of the row guesses where top-p ends; the pass that
// computes the weights sums what is above the guess and collects what is near
// it, and the end is looked for there alone (Selector). Typical sampling is the
// same again, by another order. Draw marks the tokens of one block.
//
// Thread safety: none. Buffers are kept from row to row.
class Chain final {
 public:
  explicit Chain(const RowPasses* passes = &BestRowPasses())
      : passes_(passes), sample_(passes), selector_(passes) {}

  // False, and unusable, when the row is empty or holds NaN or infinity.
  // `logits` must outlive the use of the chain.
  bool Start(std::span<const float> logits);

  float max() const { return distribution_.max; }
  TokenId argmax() const;  // the lowest id that has the maximum
  // Logarithm of the sum of exp(logit - max) over the row.
  double LogMass() const;
  // The k best by logit, best first; without weights.
  std::vector<KeptToken> Best(size_t k);

  void Keep(const Cuts& cuts);
  // The rest needs Keep.

  // The first token, by id, at which the running sum of the weights exceeds
  // `uniform`, in [0, 1), of their total.
  TokenId Draw(double uniform) const;
  double total() const { return total_; }
  // What is left, best first.
  std::vector<KeptToken> Kept() const;

 private:
  Row TheRow() const { return {logits_.data(), logits_.size(), group_max_.data()}; }
  const Typicality* typicality() const { return is_typical_ ? &typicality_ : nullptr; }
  void KeepTopK(size_t k);
  void WeighAndKeepBest(const Cuts& cuts);
  size_t ReachedBy(float least) const;
  void Describe(const Selectable& all, const Prefix& in_found, const Masses* above);
  void KeepTypical(float share);
  void SumBlocks();
  std::vector<KeptToken> Marked(bool weighed) const;

  const RowPasses* const passes_;
  RowSample sample_;
  Selector selector_;
  std::span<const float> logits_;
  FloatArray group_max_;
  Distribution distribution_;

  Prefix prefix_;                   // by logit
  double mass_ = 0, surprise_ = 0;  // of it; only where typical sampling follows
  bool is_typical_ = false;
  Typicality typicality_;
  Prefix typical_;  // by typicality

  FloatArray weights_;
  std::vector<double> block_sums_;
  // Whether block_sums_ has what is kept.
  bool summed_ = false;
  double total_ = 0;
};

}  // namespace baton::sampling
