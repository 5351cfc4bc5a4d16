// SPDX-License-Identifier: Apache-2.0
// A row of logits with an index of block maxima, so that the few best tokens
// are found without sorting or even touching most of the row.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/types.h"

namespace baton::sampling {

struct Candidate {
  float logit = 0;
  TokenId id = 0;
  double weight = 0;  // filled in by the sampler
};

// The order of preference: higher logit, then lower id.
inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Thread safety: none. The row must outlive its use.
class LogitRow final {
 public:
  // Indexes `logits`; false, and unusable, when it is empty or a value in it
  // is NaN or infinite.
  bool Scan(std::span<const float> logits);

  std::span<const float> logits() const { return logits_; }
  float max() const { return max_; }
  TokenId argmax() const { return argmax_; }  // the lowest id that has the maximum

  // A bound that at least min(count, size) logits reach, and seldom many more.
  float BoundFor(size_t count);

  // Puts every token whose logit reaches `bound` into `out`, by id.
  void Gather(float bound, std::vector<Candidate>& out) const;

 private:
  std::span<const float> logits_;
  std::vector<float> block_max_;
  std::vector<float> order_;  // scratch of BoundFor
  float max_ = 0;
  TokenId argmax_ = 0;
};

}  // namespace baton::sampling
