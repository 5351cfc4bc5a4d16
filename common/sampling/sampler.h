// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/sampling/chain.h"
#include "common/sampling/logit_edits.h"
#include "common/sampling/params.h"

namespace baton::sampling {

inline constexpr float kGreedyBelow = 1e-5f;  // temperatures that are as good as 0

// Uniform in [0, 1) with 53 random bits: a pure function of its arguments
// (Salmon et al., 2011, "Parallel Random Numbers: As Easy as 1, 2, 3",
// Philox-4x32-10). `choice` tells apart the answers of one request.
double CounterUniform(uint64_t seed, uint32_t choice, uint32_t output_index);

// Picks the token for a position of a sequence.
//
// Order of steps: mask ids >= usable_vocabulary; the edits of EditLogits;
// temperature; top-k; top-p; min-p; typical; draw, which walks the kept tokens
// by id. Equal logits are ordered by id, lower first. A temperature below 1e-5
// is greedy: the best token after the edits. `logits` [vocabulary] is read
// only. Log-probabilities are of the unmodified logits.
// INTERNAL when a usable logit is NaN or infinite, or every token is banned;
// FAILED_PRECONDITION when they are with a constraint's help. Nothing else fails.
// A pure function: same arguments, same result, on every worker and CPU.
absl::StatusOr<Sample> SampleToken(std::span<const float> logits, uint32_t usable_vocabulary,
                                   const Position& position, const Params& params);

// What it says when no token is left; NotFinite is the other.
absl::Status EveryTokenBanned(bool constrained);

// Log-probabilities of `token` in a row of usable logits, with the `top` most
// probable tokens. INTERNAL when a logit is NaN or infinite.
absl::StatusOr<TokenLogprobs> ComputeLogprobs(std::span<const float> logits, TokenId token,
                                              size_t top);

// The distribution after a step of the chain, for people who look into it.
struct StepDistribution {
  const char* step = "";
  size_t kept = 0;                              // tokens with a probability
  std::vector<std::pair<TokenId, double>> top;  // id and probability, best first
};

// What SampleToken's draw sees after each step that does something, the
// model's own distribution first; at most `limit` tokens each. Errors as there.
absl::StatusOr<std::vector<StepDistribution>> ExplainSampling(std::span<const float> logits,
                                                              uint32_t usable_vocabulary,
                                                              const Position& position,
                                                              const Params& params, size_t limit);

}  // namespace baton::sampling
