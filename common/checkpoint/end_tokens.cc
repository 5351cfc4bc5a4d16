// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/end_tokens.h"

#include <algorithm>

namespace baton::checkpoint {

void AddConventionalEndTokens(const tokenizer::Vocabulary& vocabulary,
                              std::vector<TokenId>& end_tokens) {
  for (const char* name : {"<|im_end|>", "<|eot_id|>", "<|user|>", "<|observation|>"}) {
    const auto id = vocabulary.FindControl(name);
    if (id.has_value() &&
        std::find(end_tokens.begin(), end_tokens.end(), *id) == end_tokens.end()) {
      end_tokens.push_back(*id);
    }
  }
}

}  // namespace baton::checkpoint
