// SPDX-License-Identifier: Apache-2.0
// Whether checking a draft pays.
#pragma once

#include <array>
#include <cstdint>

#include "common/speculation/prompt_lookup.h"

namespace baton::speculation {

// Of one sequence in one step, that a request may ask for.
inline constexpr uint32_t kMostDraftTokens = 16;

// How well the drafts of one sequence did lately. Thread safety: none.
class DraftRecord final {
 public:
  // Probability that a draft's next token is right, given that those before were.
  double Probability(Evidence evidence) const;
  // Of `drafted` tokens, the first `accepted` were right.
  void Observe(Evidence evidence, uint32_t drafted, uint32_t accepted);
  // A draft was not worth checking. What is known fades, so that it is tried again
  // some day.
  void Skip(Evidence evidence);

 private:
  struct Counts {
    double right = 0, checked = 0;
  };

  std::array<Counts, kEvidences> counts_;
};

// How many tokens of a draft to check: as long as the chance that one more is
// right and reached exceeds `row_price`, what its row costs in tokens: the time of
// a row over the time that the step takes for a token now.
uint32_t DraftLength(double probability, double row_price, uint32_t most);

// Whether to check one token although its row seems too dear. What rows cost is
// learned from steps that have them: after a wrong first guess there would be none.
// Thread safety: none.
class PriceDoubt final {
 public:
  // Of the drafts that price alone forbids, one in so many is tried.
  static constexpr uint32_t kEvery = 64;

  // One more is forbidden. True: it is to be tried.
  bool Try() {
    if (++forbidden_ < kEvery) return false;
    forbidden_ = 0;
    return true;
  }

 private:
  uint32_t forbidden_ = 0;
};

}  // namespace baton::speculation
