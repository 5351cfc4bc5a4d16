// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/prompt_lookup.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace baton::speculation {
namespace {

// Of the `gram` tokens before `end`. Never leaves the process.
uint64_t HashBefore(std::span<const TokenId> tokens, size_t end, uint32_t gram) {
  return absl::HashOf(absl::MakeConstSpan(tokens.data() + end - gram, gram));
}

uint32_t CommonLength(std::span<const TokenId> tokens, size_t end, uint32_t most) {
  const size_t limit = std::min<size_t>(end, most);
  uint32_t length = 0;
  while (length < limit && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
  return length;
}

}  // namespace

void PromptLookup::Update(std::span<const TokenId> tokens) {
  // The gram that ends the sequence has nothing behind it yet.
  for (size_t end = std::max<size_t>(seen_, 1); end < tokens.size(); ++end) {
    for (size_t kind = 0; kind < kGrams.size(); ++kind) {
      if (end < kGrams[kind]) continue;
      ends_[kind].insert_or_assign(HashBefore(tokens, end, kGrams[kind]),
                                   static_cast<uint32_t>(end));
    }
  }
  seen_ = tokens.size();
}

Draft PromptLookup::Propose(std::span<const TokenId> tokens, uint32_t most) const {
  Draft draft;
  for (size_t kind = 0; kind < kGrams.size() && most > 0; ++kind) {
    if (tokens.size() <= kGrams[kind]) continue;
    const auto found = ends_[kind].find(HashBefore(tokens, tokens.size(), kGrams[kind]));
    if (found == ends_[kind].end()) continue;
    const uint32_t end = found->second;
    const uint32_t matched = CommonLength(tokens, end, kLongestMatch);
    if (matched < kGrams[kind]) continue;  // another gram with this hash
    // Where that runs into the end of the sequence it goes on with the draft: a
    // repetition repeats.
    for (uint32_t i = 0; i < most; ++i) {
      const size_t from = end + i;
      draft.tokens.push_back(from < tokens.size() ? tokens[from]
                                                  : draft.tokens[from - tokens.size()]);
    }
    draft.matched = matched;
    break;
  }
  return draft;
}

}  // namespace baton::speculation
