// SPDX-License-Identifier: Apache-2.0
// Tokenizers that come as sentencepiece's tokenizer.model.
//
// The library lives in a namespace with a C library of its own, which keeps a
// few KiB for each thread that ever encoded, also after the thread's end:
// encode on threads that live long.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton::tokenizer {

struct SentencePieceOptions {
  // Tokens that are no pieces, such as ChatGLM's [gMASK], which the model's
  // code numbers behind them.
  std::vector<AddedToken> added_tokens;
  // Control tokens by name, so that a caller need not know where pieces end.
  std::vector<std::string> prefix;
  std::vector<TokenId> end_token_ids;   // the model's </s> when empty
  std::vector<std::string> end_tokens;  // more of them
};

// ChatGLM's control tokens, numbered from `first_id` (the number of pieces) on:
// [MASK] [gMASK] [sMASK] sop eop; with `roles` also ChatGLM3's four.
std::vector<AddedToken> ChatGlmControlTokens(TokenId first_id, bool roles);

// Number of pieces in a model. INVALID_ARGUMENT when it is none.
absl::StatusOr<uint32_t> SentencePieceCount(std::span<const std::byte> model);

// Copies `model`. INVALID_ARGUMENT: not a sentencepiece model, or options that
// name tokens that are not there. FAILED_PRECONDITION: the library's shim
// cannot be loaded; the message says where it was sought.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(std::span<const std::byte> model,
                                                             const SentencePieceOptions& options);

}  // namespace baton::tokenizer
