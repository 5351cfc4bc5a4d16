// SPDX-License-Identifier: Apache-2.0
// Whether checking a draft pays.
#pragma once

#include <array>
#include <cstdint>

namespace baton::speculation {

// Of one sequence in one step, that a request may ask for.
inline constexpr uint32_t kMostDraftTokens = 16;

// How well the drafts of one sequence did lately. Thread safety: none.
class DraftRecord final {
 public:
  // Probability that a draft's next token is right, given that those before were.
  double Probability(uint32_t matched) const;
  // Of `drafted` tokens behind a match of `matched`, the first `accepted` were right.
  void Observe(uint32_t matched, uint32_t drafted, uint32_t accepted);
  // A draft was not worth checking. What is known fades, so that it is tried again
  // some day.
  void Skip(uint32_t matched);

 private:
  struct Counts {
    double right = 0, checked = 0;
  };
  static uint32_t KindOf(uint32_t matched);

  std::array<Counts, 2> counts_;  // of short and of long matches
};

// How many tokens of a draft to check: as long as the chance that one more is
// right and reached exceeds `row_price`, what its row costs in tokens: the time of
// a row over the time that the step takes for a token now.
uint32_t DraftLength(double probability, double row_price, uint32_t most);

}  // namespace baton::speculation
