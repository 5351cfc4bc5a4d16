// SPDX-License-Identifier: Apache-2.0
// What a constraint leaves to choose from, for tools that look at one token.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "baton/client.h"
#include "common/base/types.h"
#include "common/grammar/token_trie.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::cli {

// The tokens that may follow `outputs`; end tokens are among them where the text
// may end. INVALID_ARGUMENT: several constraints in one, one that is wrong or
// not supported, or outputs that do not match; names the flags.
absl::StatusOr<grammar::TokenMask> AllowedNext(const Constraint& constraint,
                                               const tokenizer::Tokenizer& tokenizer,
                                               std::span<const TokenId> outputs,
                                               std::span<const TokenId> end_tokens);

}  // namespace baton::cli
