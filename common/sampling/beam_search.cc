// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/beam_search.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/sampling/chain.h"
#include "common/sampling/exact_math.h"

namespace baton::sampling {
namespace {

// Buffers of one thread.
struct BeamScratch {
  Chain chain;
  std::vector<float> edited;
};

BeamScratch& ThreadBeamScratch() {
  thread_local BeamScratch scratch;
  return scratch;
}

// A candidate of all beams together.
struct Ranked {
  double sum;
  uint32_t beam;
  const BeamCandidate* candidate;
};

bool Better(const Ranked& a, const Ranked& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  if (a.beam != b.beam) return a.beam < b.beam;
  return a.candidate->token < b.candidate->token;
}

}  // namespace

std::optional<BadParam> FindBadParam(const BeamParams& params) {
  if (params.width == 0 || params.width > kMostBeams) {
    return BadParam{"width", absl::StrCat("is ", params.width, "; it must be 1 to ", kMostBeams)};
  }
  // NaN fails every comparison.
  if (!(params.length_penalty >= -10 && params.length_penalty <= 10)) {
    return BadParam{"length_penalty",
                    absl::StrFormat("is %g; it must be in [-10, 10]", params.length_penalty)};
  }
  return std::nullopt;
}

absl::StatusOr<BeamRow> ExpandBeam(std::span<const float> logits, uint32_t usable_vocabulary,
                                   const Position& position, const Params& params, size_t count) {
  BeamScratch& scratch = ThreadBeamScratch();
  Chain& chain = scratch.chain;
  const auto usable = logits.first(std::min<size_t>(usable_vocabulary, logits.size()));
  if (!chain.Start(usable)) return NotFinite();
  const double max = chain.max(), log_mass = chain.LogMass();
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - max) - log_mass);
  };
  BeamRow row;
  for (const KeptToken& kept : chain.Best(params.logprobs.value_or(0))) {
    row.top.emplace_back(kept.id, logprob(kept.logit));
  }
  std::span<const float> values = usable;
  const bool edits = EditsLogits(params, position);
  if (edits) {
    scratch.edited.resize(usable.size());
    std::transform(usable.begin(), usable.end(), scratch.edited.begin(), logprob);
    if (!EditLogits(params, position, scratch.edited)) return NotFinite();
    values = scratch.edited;
  }
  if (!chain.Start(values)) return NotFinite();
  if (chain.max() == kBanned) {
    // With a constraint this beam cannot go on; others may.
    if (!position.allowed.empty()) return row;
    return absl::InternalError("every token is banned");
  }
  for (const KeptToken& kept : chain.Best(count)) {
    if (kept.logit == kBanned) break;
    const float own = logprob(usable[kept.id]);
    row.candidates.push_back({kept.id, edits ? kept.logit : own, own});
  }
  return row;
}

BeamSearch::BeamSearch(const BeamParams& params, std::vector<TokenId> end_tokens,
                       uint32_t most_tokens)
    : params_(params), end_tokens_(std::move(end_tokens)), most_tokens_(most_tokens), live_(1) {}

bool BeamSearch::Ends(TokenId token) const {
  return length_ >= most_tokens_ ||
         std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

double BeamSearch::Score(double sum, uint32_t length) const {
  return sum / ExactPower(length, params_.length_penalty);
}

// Behind those of equal score: they finished first.
void BeamSearch::Finish(Beam beam) {
  const double score = Score(beam.sum, length_);
  const auto place = std::find_if(finished_.begin(), finished_.end(),
                                  [score](const Hypothesis& other) { return other.score < score; });
  finished_.insert(place, Hypothesis{std::move(beam), score});
  if (finished_.size() > params_.width) finished_.pop_back();
}

bool BeamSearch::IsDone() const {
  if (live_.empty() || length_ >= most_tokens_) return true;
  if (finished_.size() < params_.width) return false;
  if (params_.early_stopping == EarlyStopping::kAlways) return true;
  const bool longest =
      params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  return Score(live_.front().sum, longest ? most_tokens_ : length_) <= finished_.back().score;
}

std::vector<uint32_t> BeamSearch::Advance(std::span<const BeamRow> rows,
                                          const Completes& completes) {
  std::vector<Ranked> all;
  for (uint32_t i = 0; i < rows.size(); ++i) {
    for (const BeamCandidate& candidate : rows[i].candidates) {
      all.push_back({live_[i].sum + double{candidate.value}, i, &candidate});
    }
  }
  std::sort(all.begin(), all.end(), Better);
  ++length_;
  std::vector<Beam> next;
  std::vector<uint32_t> parents;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto& [sum, parent, candidate] = all[rank];
    if (rank >= params_.width && next.size() >= params_.width) break;
    const bool ends = Ends(candidate->token) || (completes && completes(parent, candidate->token));
    if (ends ? rank >= params_.width : next.size() >= params_.width) continue;
    Beam beam = live_[parent];
    beam.tokens.push_back(candidate->token);
    beam.logprobs.push_back(
        std::make_shared<const TokenLogprobs>(TokenLogprobs{candidate->logprob, rows[parent].top}));
    beam.sum = sum;
    if (ends) {
      Finish(std::move(beam));
    } else {
      next.push_back(std::move(beam));
      parents.push_back(parent);
    }
  }
  live_ = std::move(next);
  done_ = IsDone();
  return parents;
}

}  // namespace baton::sampling
