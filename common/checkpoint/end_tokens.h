// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common/tokenizer/vocabulary.h"

namespace baton::checkpoint {

// Adds the control tokens that end an answer by the convention of their prompt
// format, whether or not the checkpoint lists them: <|im_end|> of ChatML,
// <|eot_id|> of Llama 3, <|user|> and <|observation|> of ChatGLM3.
void AddConventionalEndTokens(const tokenizer::Vocabulary& vocabulary,
                              std::vector<TokenId>& end_tokens);

}  // namespace baton::checkpoint
