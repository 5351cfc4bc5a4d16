// SPDX-License-Identifier: Apache-2.0
// How a sequence's tokens are chosen: plain values, already validated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
  float min_p = 0;
  float typical_p = 1;
  uint64_t seed = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::vector<std::vector<TokenId>> bad_sequences = {};
  uint32_t min_tokens = 0;
  std::optional<uint32_t> logprobs = std::nullopt;         // number of alternatives; absent: none
  std::optional<uint32_t> prompt_logprobs = std::nullopt;  // of the prompt's tokens

  bool penalizes() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// Limits of lists.
inline constexpr size_t kMostBiases = 1024;
inline constexpr size_t kMostBadSequences = 256;
inline constexpr size_t kMostBadSequenceTokens = 32;
inline constexpr uint32_t kMostLogprobs = 20;

struct BadParam {
  std::string field;    // such as "top_p", "logit_bias[7]"
  std::string problem;  // such as "is 2; it must be in (0, 1]"
};

// The first value outside the ranges of types.proto, if any. NaN is outside
// every range.
std::optional<BadParam> FindBadParam(const Params& params);

// INVALID_ARGUMENT with what FindBadParam says.
absl::Status Validate(const Params& params);

// Log-probabilities of one token, from the unmodified logits.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // best first, equal ones by id
};

struct Sample {
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs;
};

}  // namespace baton::sampling
