// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/vocabulary.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace baton::tokenizer {
namespace {

// Bounds the work per byte of text in UserDefinedTokens::MatchAt.
constexpr size_t kMaxUserDefinedBytes = 64;
constexpr TokenId kMaxTokens = 1 << 22;

bool LooksLikeMarker(std::string_view text) {
  return text.size() > 4 && text.starts_with("<|") && text.ends_with("|>");
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Make(std::vector<std::string> texts,
                                            std::vector<TokenKind> kinds) {
  if (kinds.empty()) kinds.assign(texts.size(), TokenKind::kNormal);
  if (texts.empty()) return absl::InvalidArgumentError("the tokenizer has no tokens");
  if (texts.size() != kinds.size() || texts.size() > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ", texts.size(),
                                                   " tokens but ", kinds.size(), " token types"));
  }
  Vocabulary vocabulary;
  vocabulary.texts_ = std::move(texts);
  vocabulary.kinds_ = std::move(kinds);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string& text = vocabulary.texts_[id];
    TokenKind& kind = vocabulary.kinds_[id];
    if (kind == TokenKind::kUserDefined && LooksLikeMarker(text)) kind = TokenKind::kControl;
    if (text.empty()) continue;
    if (kind == TokenKind::kControl) vocabulary.by_control_name_.emplace(text, id);
    if (kind == TokenKind::kNormal || kind == TokenKind::kUserDefined) {
      vocabulary.by_text_.emplace(text, id);
    }
  }
  return vocabulary;
}

absl::Status Vocabulary::Add(const std::vector<AddedToken>& added, std::vector<std::string>& texts,
                             std::vector<TokenKind>& kinds) {
  for (const AddedToken& token : added) {
    if (token.id >= kMaxTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("added token \"", token.text, "\" has id ", token.id));
    }
    if (token.id < texts.size() && texts[token.id] == token.text && !token.control) continue;
    if (token.id >= texts.size()) {
      texts.resize(token.id + 1);
      kinds.resize(token.id + 1, TokenKind::kUnused);
    }
    // An unknown token that is listed as special stays the unknown token.
    if (kinds[token.id] == TokenKind::kUnknown && texts[token.id] == token.text) continue;
    texts[token.id] = token.text;
    kinds[token.id] = token.control ? TokenKind::kControl : TokenKind::kUserDefined;
  }
  return absl::OkStatus();
}

std::optional<TokenId> Vocabulary::FindText(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Vocabulary::FindControl(std::string_view name) const {
  const auto found = by_control_name_.find(name);
  return found == by_control_name_.end() ? std::nullopt : std::optional(found->second);
}

absl::Status Vocabulary::CheckIds(const SequenceTokens& tokens) const {
  for (const auto* list : {&tokens.prefix, &tokens.end_tokens}) {
    for (TokenId id : *list) {
      if (id >= size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("special token ", id, " is outside the ", size(), " tokens"));
      }
    }
  }
  return absl::OkStatus();
}

UserDefinedTokens::UserDefinedTokens(const Vocabulary& vocabulary) {
  std::set<size_t, std::greater<>> lengths;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string& text = vocabulary.text(id);
    if (vocabulary.kind(id) != TokenKind::kUserDefined || text.empty() ||
        text.size() > kMaxUserDefinedBytes || !IsValidUtf8(text)) {
      continue;
    }
    tokens_.emplace(text, id);
    lengths.insert(text.size());
    first_bytes_.set(static_cast<unsigned char>(text[0]));
  }
  lengths_.assign(lengths.begin(), lengths.end());
}

std::optional<TokenId> UserDefinedTokens::MatchAt(std::string_view text, size_t* length) const {
  if (!first_bytes_[static_cast<unsigned char>(text[0])]) return std::nullopt;
  for (size_t candidate : lengths_) {
    if (candidate > text.size()) continue;
    const auto found = tokens_.find(text.substr(0, candidate));
    if (found == tokens_.end()) continue;
    *length = candidate;
    return found->second;
  }
  return std::nullopt;
}

std::vector<UserDefinedTokens::Part> UserDefinedTokens::Split(std::string_view text) const {
  std::vector<Part> parts;
  size_t begin = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    size_t length = 0;
    const std::optional<TokenId> token = MatchAt(text.substr(at), &length);
    if (!token.has_value()) {
      ++at;
      continue;
    }
    if (at > begin) parts.push_back({text.substr(begin, at - begin), std::nullopt});
    parts.push_back({text.substr(at, length), token});
    at += length;
    begin = at;
  }
  if (begin < text.size()) parts.push_back({text.substr(begin), std::nullopt});
  return parts;
}

}  // namespace baton::tokenizer
