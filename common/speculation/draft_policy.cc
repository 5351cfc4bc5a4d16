// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/draft_policy.h"

namespace baton::speculation {
namespace {

// What is expected of a sequence that nothing is known of yet, worth as much as
// one checked token.
constexpr std::array<double, kEvidences> kPrior = {0.25, 0.5, 0.75, 0.5};
// Of earlier drafts, the next one leaves so much, a skipped one so much.
constexpr double kFade = 0.9, kSkipFade = 0.99;
// Guesses of costs are no better than this; and a token that is hardly worth its
// row brings nothing, while an answer that does not repeat pays for each try.
constexpr double kMargin = 1.1, kLeastGain = 0.02;

}  // namespace

double DraftRecord::Probability(Evidence evidence) const {
  const auto kind = static_cast<size_t>(evidence);
  return (counts_[kind].right + kPrior[kind]) / (counts_[kind].checked + 1);
}

void DraftRecord::Observe(Evidence evidence, uint32_t drafted, uint32_t accepted) {
  Counts& counts = counts_[static_cast<size_t>(evidence)];
  // Nothing was learned of the tokens behind the first wrong one.
  const uint32_t checked = accepted < drafted ? accepted + 1 : drafted;
  counts.right = counts.right * kFade + accepted;
  counts.checked = counts.checked * kFade + checked;
}

void DraftRecord::Skip(Evidence evidence) {
  Counts& counts = counts_[static_cast<size_t>(evidence)];
  counts.right *= kSkipFade;
  counts.checked *= kSkipFade;
}

uint32_t DraftLength(double probability, double row_price, uint32_t most) {
  uint32_t length = 0;
  for (double reached = probability; length < most && reached > row_price * kMargin + kLeastGain;
       reached *= probability) {
    ++length;
  }
  return length;
}

}  // namespace baton::speculation
