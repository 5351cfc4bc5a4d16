// SPDX-License-Identifier: Apache-2.0
// Beam search as a pure function of rows of logits: who owns the rows and the
// KV behind them is somebody else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/sampling/logit_edits.h"
#include "common/sampling/params.h"

namespace baton::sampling {

enum class EarlyStopping : uint8_t { kHeuristic, kAlways, kNever };

// Meanings and ranges: proto/baton/v1/types.proto, BeamParams.
struct BeamParams {
  uint32_t width = 1;
  float length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
};

inline constexpr uint32_t kMostBeams = 32;

// The first value outside its range, if any.
std::optional<BadParam> FindBadParam(const BeamParams& params);

// One way to go on from a beam.
struct BeamCandidate {
  TokenId token = 0;
  float value = 0;    // added to the beam's sum: log-probability after the edits of the chain
  float logprob = 0;  // the model's own
};

// What a row of logits offers.
struct BeamRow {
  std::vector<BeamCandidate> candidates;       // best first, equal ones by id; none is banned
  std::vector<std::pair<TokenId, float>> top;  // of Params::logprobs, best first
};

// Candidates that each row has to offer, so that none that counts is missed.
constexpr size_t CandidatesPerRow(uint32_t width, size_t end_tokens) { return width + end_tokens; }

// The `count` best candidates of a row, and the alternatives that
// params.logprobs asks for. Temperature and what keeps or draws tokens are of
// no account. INTERNAL when a usable logit is NaN or infinite, or every token
// is banned. A pure function, with the same bits on every CPU.
absl::StatusOr<BeamRow> ExpandBeam(std::span<const float> logits, uint32_t usable_vocabulary,
                                   const Position& position, const Params& params, size_t count);

// The search of one prompt, or of a phase of an answer. Rules, and the order of
// ties: types.proto, BeamParams (those of transformers' GenerationMixin._beam_search).
// Thread safety: none.
class BeamSearch final {
 public:
  struct Beam {
    std::vector<TokenId> tokens;  // of this search
    // As many as tokens.
    std::vector<std::shared_ptr<const TokenLogprobs>> logprobs;
    double sum = 0;
  };
  struct Hypothesis {
    Beam beam;
    double score = 0;
  };

  // A hypothesis ends with any of `end_tokens`, or with `most_tokens` tokens.
  // REQUIRES: valid params, most_tokens >= 1.
  BeamSearch(const BeamParams& params, std::vector<TokenId> end_tokens, uint32_t most_tokens);

  // Whether a candidate of a live beam ends it though it is no end token.
  using Completes = std::function<bool(uint32_t beam, TokenId token)>;

  // One step: rows[i] is of live()[i]. Returns for each beam that is live now
  // which of those before it goes on from. `completes` may be empty: none does.
  // REQUIRES: !done().
  std::vector<uint32_t> Advance(std::span<const BeamRow> rows, const Completes& completes = {});

  bool done() const { return done_; }
  // At first one beam without tokens.
  const std::vector<Beam>& live() const { return live_; }
  // Best first. Not empty when done, unless there was no candidate.
  const std::vector<Hypothesis>& finished() const { return finished_; }
  size_t candidates_per_row() const { return CandidatesPerRow(params_.width, end_tokens_.size()); }

 private:
  bool Ends(TokenId token) const;
  double Score(double sum, uint32_t length) const;
  void Finish(Beam beam);
  bool IsDone() const;

  const BeamParams params_;
  const std::vector<TokenId> end_tokens_;
  const uint32_t most_tokens_;
  uint32_t length_ = 0;  // of the live beams
  std::vector<Beam> live_;
  std::vector<Hypothesis> finished_;
  bool done_ = false;
};

}  // namespace baton::sampling
