// SPDX-License-Identifier: Apache-2.0
// The steps of sampling that change logits: penalties, bias, bans.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "common/base/types.h"
#include "common/sampling/params.h"
#include "common/sampling/token_history.h"

namespace baton::sampling {

// Where a token is to be chosen.
struct Position {
  // Prompt, then the output so far.
  std::span<const TokenId> tokens = {};
  // Of the token to be chosen, in the output: the last `output_index` of
  // `tokens` are output.
  uint32_t output_index = 0;
  uint32_t choice = 0;  // tells apart the answers of one request
  // Not chosen while the output is shorter than min_tokens.
  std::span<const TokenId> end_tokens = {};
  // Tokens that a constraint allows: bit i of word i / 64 is token i, and those
  // beyond are not allowed. Empty: all are.
  std::span<const uint64_t> allowed = {};
  // Of `tokens`, kept up to date by the caller; null: counted here.
  const TokenHistory* history = nullptr;

  size_t prompt_tokens() const {
    return tokens.size() > output_index ? tokens.size() - output_index : 0;
  }
};

// A banned token's logit: weighs nothing against any other.
inline constexpr float kBanned = -std::numeric_limits<float>::max();

bool EditsLogits(const Params& params, const Position& position);

// What bad sequences and min_tokens ban there, maybe some more than once or outside
// of the vocabulary.
std::vector<TokenId> BannedTokens(const Params& params, const Position& position);

// In this order, each from the result of the one before, and clamped to finite
// values:
//   repetition penalty: positive logits of tokens in prompt or output are
//     divided by it, others multiplied; a token counts once;
//   presence penalty: taken away once from each token in the output;
//   frequency penalty: taken away as often as the token stands in the output;
//   bias: added;
//   bad sequences: the last token of one whose others stand at the end of
//     `tokens` is banned;
//   min tokens: end tokens are banned;
//   constraint: what it does not allow is banned.
// Tokens outside of `logits` are passed over. False, with `logits` undefined,
// when a logit that is to be changed is NaN or infinite.
bool EditLogits(const Params& params, const Position& position, std::span<float> logits);

}  // namespace baton::sampling
