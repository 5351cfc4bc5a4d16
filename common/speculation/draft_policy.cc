// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/draft_policy.h"

namespace baton::speculation {
namespace {

constexpr uint32_t kLongMatch = 5;
// What is expected of a sequence that nothing is known of yet, worth as much as
// one checked token.
constexpr std::array<double, 2> kPrior = {0.3, 0.7};
// Of earlier drafts, the next one leaves so much, a skipped one so much.
constexpr double kFade = 0.9, kSkipFade = 0.99;
// Guesses of costs are no better than this.
constexpr double kMargin = 1.1;

}  // namespace

uint32_t DraftRecord::KindOf(uint32_t matched) { return matched >= kLongMatch ? 1 : 0; }

double DraftRecord::Probability(uint32_t matched) const {
  const Counts& counts = counts_[KindOf(matched)];
  return (counts.right + kPrior[KindOf(matched)]) / (counts.checked + 1);
}

void DraftRecord::Observe(uint32_t matched, uint32_t drafted, uint32_t accepted) {
  Counts& counts = counts_[KindOf(matched)];
  // Nothing was learned of the tokens behind the first wrong one.
  const uint32_t checked = accepted < drafted ? accepted + 1 : drafted;
  counts.right = counts.right * kFade + accepted;
  counts.checked = counts.checked * kFade + checked;
}

void DraftRecord::Skip(uint32_t matched) {
  Counts& counts = counts_[KindOf(matched)];
  counts.right *= kSkipFade;
  counts.checked *= kSkipFade;
}

uint32_t DraftLength(double probability, double row_price, uint32_t most) {
  uint32_t length = 0;
  for (double reached = probability; length < most && reached > row_price * kMargin;
       reached *= probability) {
    ++length;
  }
  return length;
}

}  // namespace baton::speculation
