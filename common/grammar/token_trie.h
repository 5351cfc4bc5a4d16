// SPDX-License-Identifier: Apache-2.0
// A vocabulary by the bytes of its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"

namespace baton::tokenizer {
class Tokenizer;
}

namespace baton::grammar {

// Bit i of word i / 64: token i.
using TokenMask = std::vector<uint64_t>;
inline void SetBit(TokenMask& mask, TokenId token) {
  mask[token / 64] |= uint64_t{1} << token % 64;
}
inline void ClearBit(TokenMask& mask, TokenId token) {
  mask[token / 64] &= ~(uint64_t{1} << token % 64);
}
inline bool HasBit(const TokenMask& mask, TokenId token) {
  return token / 64 < mask.size() && (mask[token / 64] >> token % 64 & 1) != 0;
}

// Tokens in one array, as a tree of bytes in depth-first order: a walk goes
// forwards, and skips what cannot follow. Tokens without bytes (control tokens)
// and of more than kLongestToken bytes are not in it.
//
// "Plain" are printable ASCII characters but for " and \, "text" are these and
// all characters beyond ASCII: what stands in strings as it is. Tokens of such
// characters alone, at most kLongestRun of them, are kept as masks by length,
// too, and need no walk where each of them may follow.
//
// Immutable, so thread-safe.
class TokenTrie final {
 public:
  static constexpr uint32_t kLongestToken = 32;
  static constexpr uint32_t kLongestRun = 32;

  enum Kind : uint8_t { kPlain = 1, kText = 2, kOther = 4 };

  struct Node {
    uint32_t end = 0;          // behind the nodes below it
    uint32_t first_token = 0;  // its own are [first_token, the next node's) of tokens()
    uint8_t byte = 0;
    uint8_t depth = 0;  // bytes of the token up to this one
    uint8_t kinds = 0;  // of the tokens at and below it
  };

  struct Token {
    std::string bytes;     // empty: none
    bool is_byte = false;  // stands for one raw byte (see Tokenizer::IsByte)
  };
  // [id]. `drops_leading_space` as in Tokenizer.
  TokenTrie(const std::vector<Token>& tokens, bool drops_leading_space);
  // Takes tens of milliseconds for large vocabularies.
  static std::shared_ptr<const TokenTrie> Of(const tokenizer::Tokenizer& tokenizer);

  uint32_t vocabulary() const { return static_cast<uint32_t>(offsets_.size()) - 1; }
  size_t mask_words() const { return (vocabulary() + 63) / 64; }
  // The bytes of a token; empty for those that are not in the tree, and
  // outside of the vocabulary.
  std::string_view bytes(TokenId token) const;
  // Whether an answer that begins with the token loses the token's first byte,
  // a space.
  bool LosesSpace(TokenId token) const { return drops_leading_space_ && HasBit(spaced_, token); }
  bool drops_leading_space() const { return drops_leading_space_; }

  // The last node has no token and stands behind all others.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens(size_t node) const {
    return std::span(tokens_).subspan(nodes_[node].first_token,
                                      nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  // Tokens of at most `characters` plain (or text) characters, for 0 to kLongestRun.
  const TokenMask& plain(uint32_t characters) const { return plain_[characters]; }
  const TokenMask& text(uint32_t characters) const { return text_[characters]; }

 private:
  void AddNodes(const std::vector<TokenId>& sorted);
  void AddMasks();
  uint32_t RunLength(TokenId token, bool* plain) const;

  const bool drops_leading_space_;
  std::string bytes_;
  std::vector<uint32_t> offsets_;  // [id + 1] into bytes_
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;  // in the order of nodes_
  TokenMask spaced_;             // those that begin with a space, but for raw bytes
  std::vector<TokenMask> plain_, text_;
};

}  // namespace baton::grammar
