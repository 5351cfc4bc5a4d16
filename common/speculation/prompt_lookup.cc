// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/prompt_lookup.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace baton::speculation {
namespace {

// Runs beyond this are as good as this.
constexpr uint32_t kLongestRun = 16;
// A copy goes on behind another token when so many were right before it, and
// while no more than so many others follow.
constexpr uint32_t kResumeAfter = 3;
constexpr uint32_t kMostOthers = 4;
constexpr size_t kMostReplaced = 8;

// Of the last `gram` tokens. Never leaves the process.
uint64_t HashOfLast(std::span<const TokenId> tokens, uint32_t gram) {
  return absl::HashOf(absl::MakeConstSpan(tokens.data() + tokens.size() - gram, gram));
}

// How many tokens before `end` are those before the end of `tokens`.
uint32_t CommonLength(std::span<const TokenId> tokens, size_t end) {
  const size_t limit = std::min<size_t>(end, kLongestRun);
  uint32_t length = 0;
  while (length < limit && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
  return length;
}

}  // namespace

void PromptLookup::Update(std::span<const TokenId> tokens) {
  for (; seen_ < tokens.size(); ++seen_) {
    const std::span<const TokenId> until = tokens.first(seen_ + 1);
    if (source_ > 0) Follow(tokens[source_], tokens[seen_]);
    Find(until);
    Resync(until);
  }
}

void PromptLookup::Find(std::span<const TokenId> tokens) {
  found_ = {};
  for (size_t kind = 0; kind < kGrams.size(); ++kind) {
    if (tokens.size() < kGrams[kind]) continue;
    found_[kind] = std::exchange(ends_[kind][HashOfLast(tokens, kGrams[kind])],
                                 static_cast<uint32_t>(tokens.size()));
  }
}

// `token` has come where `expected` stands in the source.
void PromptLookup::Follow(TokenId expected, TokenId token) {
  const bool same = token == expected;
  if (same || token == Replaced(expected)) {
    if (same) Replace(expected, expected);
    run_ = std::min(run_ + 1, kLongestRun);
    others_ = 0;
    ++source_;
  } else if (run_ >= kResumeAfter || (run_ == 0 && others_ > 0 && others_ < kMostOthers)) {
    // Of several in the place of one, none stands for it.
    if (others_++ == 0) {
      Replace(expected, token);
      earlier_ = run_;
      ++source_;
    } else if (!replaced_.empty()) {
      replaced_.pop_back();
    }
    run_ = 0;
  } else {
    source_ = run_ = earlier_ = others_ = 0;
  }
}

// Copies from where more tokens are the same.
void PromptLookup::Resync(std::span<const TokenId> tokens) {
  const uint32_t trust = run_ + std::min(earlier_, 6u) / 2;
  for (size_t kind = 0; kind < kGrams.size(); ++kind) {
    const uint32_t end = found_[kind];
    if (end == 0) continue;
    if (end == source_) return;
    const uint32_t matched = CommonLength(tokens, end);
    if (matched < kGrams[kind]) continue;  // another gram with this hash
    if (matched <= trust) return;
    source_ = end;
    run_ = matched;
    earlier_ = others_ = 0;
    return;
  }
}

TokenId PromptLookup::Replaced(TokenId token) const {
  for (const auto& [from, to] : replaced_) {
    if (from == token) return to;
  }
  return token;
}

void PromptLookup::Replace(TokenId token, TokenId by) {
  std::erase_if(replaced_, [&](const auto& pair) { return pair.first == token; });
  if (token == by) return;
  if (replaced_.size() == kMostReplaced) replaced_.erase(replaced_.begin());
  replaced_.emplace_back(token, by);
}

Draft PromptLookup::Propose(std::span<const TokenId> tokens, uint32_t most) const {
  Draft draft;
  if (source_ == 0) return draft;
  // Where that runs into the end of the sequence it goes on with the draft: a
  // repetition repeats.
  for (uint32_t i = 0; i < most; ++i) {
    const size_t from = source_ + i;
    draft.tokens.push_back(from < tokens.size() ? Replaced(tokens[from])
                                                : draft.tokens[from - tokens.size()]);
  }
  draft.evidence = run_ > 4       ? Evidence::kLong
                   : earlier_ > 0 ? Evidence::kResumed
                   : run_ > 2     ? Evidence::kMiddle
                                  : Evidence::kShort;
  return draft;
}

}  // namespace baton::speculation
