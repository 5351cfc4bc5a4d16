// SPDX-License-Identifier: Apache-2.0
// What tokenizers share: the table of tokens and the text tokens among them
// that are taken whole.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"

namespace baton::tokenizer {

// GGUF's and sentencepiece's kinds of tokens.
enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

inline constexpr TokenId kNoToken = UINT32_MAX;

// A token that a model's code or configuration adds to a vocabulary.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool control = true;  // else it decodes to its text
};

// Tokens that a model's convention puts around text.
struct SequenceTokens {
  std::vector<TokenId> prefix;
  std::vector<TokenId> end_tokens;
};

// Every token's text and kind. Thread-safe: immutable once built.
class Vocabulary {
 public:
  // `kinds` is empty (all normal) or as long as `texts`. A user-defined token
  // spelled <|…|> is control here, whatever the file calls it: a chat marker
  // that users could type is not one.
  // INVALID_ARGUMENT for other lengths or for an empty vocabulary.
  static absl::StatusOr<Vocabulary> Make(std::vector<std::string> texts,
                                         std::vector<TokenKind> kinds);
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Puts `added` over or behind `texts`, filling gaps with unused tokens; a
  // token that a piece has already keeps its kind unless the added one is
  // control. INVALID_ARGUMENT for an id of 2^22 or more.
  static absl::Status Add(const std::vector<AddedToken>& added, std::vector<std::string>& texts,
                          std::vector<TokenKind>& kinds);

  uint32_t size() const { return static_cast<uint32_t>(texts_.size()); }
  // REQUIRES for both: id < size().
  const std::string& text(TokenId id) const { return texts_[id]; }
  TokenKind kind(TokenId id) const { return kinds_[id]; }

  bool IsControl(TokenId id) const { return id < size() && kinds_[id] == TokenKind::kControl; }

  // The first normal or user-defined token with this very text.
  std::optional<TokenId> FindText(std::string_view text) const;
  std::optional<TokenId> FindControl(std::string_view name) const;

  // INVALID_ARGUMENT when one of `tokens` is outside the vocabulary.
  absl::Status CheckIds(const SequenceTokens& tokens) const;

 private:
  Vocabulary() = default;

  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
  // Keys point into texts_, whose elements stay where they are.
  std::unordered_map<std::string_view, TokenId> by_text_, by_control_name_;
};

// Cuts text at user-defined tokens: the longest match at the leftmost place.
// Tokens that are not whole characters are left out, so parts stay valid UTF-8.
class UserDefinedTokens {
 public:
  // `vocabulary` must outlive the object.
  explicit UserDefinedTokens(const Vocabulary& vocabulary);

  struct Part {
    std::string_view text;
    std::optional<TokenId> token;  // set when `text` is a user-defined token
  };
  std::vector<Part> Split(std::string_view text) const;

 private:
  std::optional<TokenId> MatchAt(std::string_view text, size_t* length) const;

  std::unordered_map<std::string_view, TokenId> tokens_;
  std::vector<size_t> lengths_;  // of all tokens, each once, longest first
  std::bitset<256> first_bytes_;
};

}  // namespace baton::tokenizer
