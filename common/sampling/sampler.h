// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/sampling/params.h"

namespace baton::sampling {

// Uniform in [0, 1) with 53 random bits: a pure function of its arguments
// (Salmon et al., 2011, "Parallel Random Numbers: As Easy as 1, 2, 3",
// Philox-4x32-10). `choice` tells apart the answers of one request.
double CounterUniform(uint64_t seed, uint32_t choice, uint32_t output_index);

// Picks the token for output index `output_index` of a sequence whose tokens
// so far (prompt, then output) are `history`.
//
// Order of steps: mask ids >= usable_vocabulary; repetition penalty over the
// distinct tokens of `history`; temperature; top-k; top-p; draw, which walks
// the kept tokens by id. Equal logits are ordered by id, lower first. A
// temperature below 1e-5 is greedy. `logits` [vocabulary] is read only.
// INTERNAL when a usable logit is NaN or infinite; nothing else fails.
// A pure function: same arguments, same result, on every worker.
absl::StatusOr<Sample> SampleToken(std::span<const float> logits, uint32_t usable_vocabulary,
                                   std::span<const TokenId> history, uint32_t output_index,
                                   const Params& params);

}  // namespace baton::sampling
