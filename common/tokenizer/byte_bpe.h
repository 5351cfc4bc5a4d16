// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: GPT-2's and its descendants'.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton::tokenizer {

struct ByteBpeOptions {
  std::string pre_tokenizer;  // a name of PreTokenizer
  // Pairs of token texts in GPT-2's printable alphabet, the best first.
  std::vector<std::pair<std::string, std::string>> merges;
  SequenceTokens sequence_tokens;
  bool nfc = false;  // text between user-defined tokens is normalized (normalize.h)
};

// Texts of normal tokens are in GPT-2's printable alphabet of bytes; those of
// user-defined and control tokens are plain text.
// INVALID_ARGUMENT: a merge of tokens that do not exist, special tokens outside
// the vocabulary. UNIMPLEMENTED: an unknown pre-tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeByteBpeTokenizer(Vocabulary vocabulary,
                                                                ByteBpeOptions options);

}  // namespace baton::tokenizer
