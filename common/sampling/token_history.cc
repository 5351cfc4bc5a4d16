// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/token_history.h"

namespace baton::sampling {

void TokenHistory::Update(std::span<const TokenId> tokens, size_t prompt_tokens) {
  for (; seen_ < tokens.size(); ++seen_) {
    const TokenId token = tokens[seen_];
    const auto [found, added] = index_.try_emplace(token, static_cast<uint32_t>(entries_.size()));
    if (added) entries_.push_back({token, 0});
    if (seen_ >= prompt_tokens) ++entries_[found->second].outputs;
  }
}

}  // namespace baton::sampling
