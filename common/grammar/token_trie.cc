// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/token_trie.h"

#include <algorithm>

#include "common/base/utf8.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::grammar {

TokenTrie::TokenTrie(const std::vector<Token>& tokens, bool drops_leading_space)
    : drops_leading_space_(drops_leading_space), spaced_((tokens.size() + 63) / 64, 0) {
  offsets_.push_back(0);
  std::vector<TokenId> sorted;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& bytes = tokens[i].bytes;
    if (!bytes.empty() && bytes.size() <= kLongestToken) {
      bytes_ += bytes;
      sorted.push_back(id);
      if (bytes[0] == ' ' && !tokens[i].is_byte) SetBit(spaced_, id);
    }
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [this](TokenId a, TokenId b) { return bytes(a) < bytes(b); });
  AddNodes(sorted);
  AddMasks();
}

std::shared_ptr<const TokenTrie> TokenTrie::Of(const tokenizer::Tokenizer& tokenizer) {
  std::vector<Token> tokens(tokenizer.size());
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.IsControl(id)) continue;
    tokens[id] = {tokenizer.TokenBytes(id), tokenizer.IsByte(id)};
  }
  return std::make_shared<const TokenTrie>(tokens, tokenizer.drops_leading_space());
}

std::string_view TokenTrie::bytes(TokenId token) const {
  if (token >= vocabulary()) return {};
  return std::string_view(bytes_).substr(offsets_[token], offsets_[token + 1] - offsets_[token]);
}

void TokenTrie::AddNodes(const std::vector<TokenId>& sorted) {
  std::vector<size_t> path;  // nodes of the token before, by depth
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view before;
  for (const TokenId id : sorted) {
    const std::string_view text = bytes(id);
    const auto common = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first -
        before.begin());
    close(common);
    for (size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(nodes_.size());
      nodes_.push_back({.first_token = static_cast<uint32_t>(tokens_.size()),
                        .byte = static_cast<uint8_t>(text[depth]),
                        .depth = static_cast<uint8_t>(depth + 1)});
    }
    bool plain = false;
    const uint32_t run = RunLength(id, &plain);
    const Kind kind = run == 0 ? kOther : plain ? kPlain : kText;
    for (const size_t node : path) nodes_[node].kinds |= kind;
    tokens_.push_back(id);
    before = text;
  }
  close(0);
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()) + 1,
                    .first_token = static_cast<uint32_t>(tokens_.size())});
}

// Characters of a token that consists of text alone; 0: it does not.
uint32_t TokenTrie::RunLength(TokenId token, bool* plain) const {
  const std::string_view text = bytes(token);
  *plain = true;
  uint32_t characters = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) return 0;
    if (byte >= 0x80) *plain = false;
    characters += (byte & 0xC0) != 0x80 ? 1 : 0;
  }
  return characters <= kLongestRun && IsValidUtf8(text) ? characters : 0;
}

void TokenTrie::AddMasks() {
  plain_.assign(kLongestRun + 1, TokenMask(mask_words(), 0));
  text_ = plain_;
  for (const TokenId id : tokens_) {
    bool plain = false;
    const uint32_t run = RunLength(id, &plain);
    if (run == 0) continue;
    for (uint32_t length = run; length <= kLongestRun; ++length) {
      SetBit(text_[length], id);
      if (plain) SetBit(plain_[length], id);
    }
  }
}

}  // namespace baton::grammar
