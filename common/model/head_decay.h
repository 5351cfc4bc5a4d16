// SPDX-License-Identifier: Apache-2.0
// An experiment: some query heads weigh old tokens less, or not at all.
//
// Long answers of small models drift into repetition; a cause that is often named
// is that some heads keep attending to far context that no longer matters. Per
// head, the attention weight of a token is multiplied by factor^n before weights
// are normalized, where n counts segments of 256 tokens (eight KV blocks) from the
// token's to the query's, at absolute positions: n is 0 in the query's own segment.
// In effect a bias of the scores that falls with distance (Press et al., 2022,
// "Train Short, Test Long", ALiBi), in steps, on chosen heads. Factor 0 resets: a
// head sees its own segment alone. Off by default; no model here was trained so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::model {

// Query heads [head_begin, head_end) of layers [layer_begin, layer_end).
struct HeadDecay {
  uint32_t layer_begin = 0, layer_end = 0;
  uint32_t head_begin = 0, head_end = 0;
  float factor = 1;  // from 0 to below 1
};

// "LAYERS:HEADS=FACTOR", where LAYERS and HEADS are a number, FIRST-LAST, or * for
// all: "2:0-3=0.9", "*:*=0". INVALID_ARGUMENT names the text and what is wrong.
absl::StatusOr<std::vector<HeadDecay>> ParseHeadDecays(const std::vector<std::string>& texts);

// [layers, heads]: factors, 1 where no rule applies; of several the last counts.
// Empty without rules. INVALID_ARGUMENT for heads that the model does not have.
absl::StatusOr<std::vector<float>> DecayTable(std::span<const HeadDecay> rules, uint32_t layers,
                                              uint32_t heads);

// What a table is, for numerics_id: workers of different tables share no KV. Empty
// for an empty one.
std::string DecayName(std::span<const float> table);

}  // namespace baton::model
