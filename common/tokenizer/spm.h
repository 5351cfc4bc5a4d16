// SPDX-License-Identifier: Apache-2.0
// The tokenizer of GGUF's "llama" vocabularies: sentencepiece's BPE over scored
// pieces with byte fallback, without the library.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/vocabulary.h"

namespace baton::tokenizer {

struct SpmOptions {
  std::vector<float> scores;     // one per token; the higher pair merges first
  bool add_dummy_prefix = true;  // a space before the text
  SequenceTokens sequence_tokens;
};

// INVALID_ARGUMENT: scores of another number or not finite, two tokens for one
// byte, special tokens outside the vocabulary.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSpmTokenizer(Vocabulary vocabulary,
                                                            SpmOptions options);

}  // namespace baton::tokenizer
