// SPDX-License-Identifier: Apache-2.0
// How a sequence's tokens are chosen: plain values, already validated.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"

namespace baton::sampling {

// Field meanings and ranges: proto/baton/v1/types.proto, SamplingParams.
struct Params {
  float temperature = 0;  // 0: greedy
  uint32_t top_k = 0;     // 0: off
  float top_p = 1;
  uint64_t seed = 0;
  float repetition_penalty = 1;
  std::optional<uint32_t> logprobs = std::nullopt;  // number of alternatives; absent: none
};

// INVALID_ARGUMENT, naming field, value and range, for values outside the
// ranges of types.proto. NaN is outside every range.
absl::Status Validate(const Params& params);

// Log-probabilities of one chosen token, from the unmodified logits.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // best first, equal ones by id
};

struct Sample {
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs;
};

}  // namespace baton::sampling
