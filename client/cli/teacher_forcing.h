// SPDX-License-Identifier: Apache-2.0
// What a model thinks of a given text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/divergence.h"
#include "common/base/types.h"
#include "common/model/model.h"

namespace baton::cli {

struct TextScore {
  // [tokens - 1]: natural logarithm of the probability of token i + 1 given
  // those before it.
  std::vector<double> logprobs;
  double total = 0;
  double perplexity = 0;  // exp(-mean); 0 of a single token
};

// Runs the whole of `tokens` and scores each from the second on. `row`, which
// may be empty, hears the logits of every position in order.
// INVALID_ARGUMENT when there is no token, or more than the context holds.
absl::StatusOr<TextScore> ScoreTokens(model::Model* model, std::span<const TokenId> tokens,
                                      const std::function<void(std::span<const float>)>& row);

// One case of a golden file: prompt and reference answer.
struct GoldenCase {
  std::string name;
  std::vector<TokenId> ids;  // prompt_ids, then greedy_ids
};

// Cases of a JSON list of {"name", "prompt_ids", "greedy_ids"} with at most
// `max_ids` ids. INVALID_ARGUMENT says which case is malformed.
absl::StatusOr<std::vector<GoldenCase>> ParseGolden(std::string_view text, uint32_t max_ids);

struct DivergenceReport {
  Divergence::Summary later;  // every position but the first of each case
  Divergence::Summary first;  // position 0: the attention sink, predicts nothing that is used
};

// KL(against || tested) at every position of every case.
absl::StatusOr<DivergenceReport> CompareModels(model::Model* against, model::Model* tested,
                                               const std::vector<GoldenCase>& cases);

}  // namespace baton::cli
