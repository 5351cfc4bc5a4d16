// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/spm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/tokenizer/character.h"
#include "common/tokenizer/merge.h"
#include "common/tokenizer/piece.h"

namespace baton::tokenizer {
namespace {

class SpmTokenizer final : public Tokenizer {
 public:
  SpmTokenizer(Vocabulary vocabulary, SpmOptions options)
      : vocabulary_(std::move(vocabulary)),
        user_defined_(vocabulary_),
        options_(std::move(options)) {
    byte_tokens_.fill(kNoToken);
  }

  absl::Status Init();

  std::string_view kind() const override { return "spm"; }
  uint32_t size() const override { return vocabulary_.size(); }
  std::vector<TokenId> Encode(std::string_view text, bool first) const override;
  std::string TokenBytes(TokenId id) const override { return PieceBytes(vocabulary_, id); }
  bool IsByte(TokenId id) const override {
    return id < size() && vocabulary_.kind(id) == TokenKind::kByte;
  }
  bool drops_leading_space() const override { return options_.add_dummy_prefix; }
  std::optional<TokenId> TokenByName(std::string_view name) const override {
    return vocabulary_.FindControl(name);
  }
  bool IsControl(TokenId id) const override { return vocabulary_.IsControl(id); }
  const std::vector<TokenId>& prefix() const override { return options_.sequence_tokens.prefix; }
  const std::vector<TokenId>& end_tokens() const override {
    return options_.sequence_tokens.end_tokens;
  }

 private:
  std::vector<Symbol> Characters(std::string_view text) const;
  void EmitBytes(std::string_view bytes, std::vector<TokenId>& ids) const;

  const Vocabulary vocabulary_;
  const UserDefinedTokens user_defined_;
  const SpmOptions options_;
  std::array<TokenId, 256> byte_tokens_;
  TokenId unknown_ = kNoToken;
  size_t longest_piece_ = 0;
};

absl::Status SpmTokenizer::Init() {
  if (options_.scores.size() != size()) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ", size(), " tokens but ",
                                                   options_.scores.size(), " scores"));
  }
  BATON_RETURN_IF_ERROR(vocabulary_.CheckIds(options_.sequence_tokens));
  for (TokenId id = 0; id < size(); ++id) {
    if (!std::isfinite(options_.scores[id])) {
      return absl::InvalidArgumentError(absl::StrCat("token ", id, "'s score is not finite"));
    }
    const TokenKind kind = vocabulary_.kind(id);
    if (kind == TokenKind::kUnknown) unknown_ = std::min(unknown_, id);
    if (kind == TokenKind::kNormal) {
      longest_piece_ = std::max(longest_piece_, vocabulary_.text(id).size());
    }
    if (kind != TokenKind::kByte) continue;
    const int byte = ParseByteName(vocabulary_.text(id));
    if (byte < 0 || byte_tokens_[byte] != kNoToken) {
      return absl::InvalidArgumentError(
          absl::StrCat("byte token ", id, " does not name a byte of its own"));
    }
    byte_tokens_[byte] = id;
  }
  return absl::OkStatus();
}

// One symbol per character.
std::vector<Symbol> SpmTokenizer::Characters(std::string_view text) const {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text.substr(at));
    const auto piece = vocabulary_.FindText(text.substr(at, length));
    symbols.push_back(
        {static_cast<uint32_t>(at), static_cast<uint32_t>(length), piece.value_or(kNoToken)});
    at += length;
  }
  return symbols;
}

void SpmTokenizer::EmitBytes(std::string_view bytes, std::vector<TokenId>& ids) const {
  for (char c : bytes) {
    const TokenId byte = byte_tokens_[static_cast<unsigned char>(c)];
    if (byte != kNoToken) {
      ids.push_back(byte);
    } else if (unknown_ != kNoToken && (ids.empty() || ids.back() != unknown_)) {
      ids.push_back(unknown_);
    }
  }
}

std::vector<TokenId> SpmTokenizer::Encode(std::string_view text, bool first) const {
  std::vector<TokenId> ids;
  if (text.empty()) return ids;
  const std::string spaced =
      first && options_.add_dummy_prefix ? absl::StrCat(" ", std::string(text)) : std::string(text);
  const std::string marked =
      ReplaceAll(IsValidUtf8(spaced) ? spaced : ReplaceInvalidUtf8(spaced), " ", kSpaceMark);
  Merger merger;
  for (const UserDefinedTokens::Part& part : user_defined_.Split(marked)) {
    if (part.token.has_value()) {
      ids.push_back(*part.token);
      continue;
    }
    std::vector<Symbol> symbols = Characters(part.text);
    merger.Run(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
      const size_t length = left.length + right.length;
      if (length > longest_piece_) return std::nullopt;
      const auto piece = vocabulary_.FindText(part.text.substr(left.begin, length));
      if (!piece.has_value()) return std::nullopt;
      return Merge{-static_cast<double>(options_.scores[*piece]), *piece};
    });
    for (const Symbol& symbol : symbols) {
      if (symbol.id != kNoToken) {
        ids.push_back(symbol.id);
      } else {
        EmitBytes(part.text.substr(symbol.begin, symbol.length), ids);
      }
    }
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSpmTokenizer(Vocabulary vocabulary,
                                                            SpmOptions options) {
  auto tokenizer = std::make_unique<SpmTokenizer>(std::move(vocabulary), std::move(options));
  BATON_RETURN_IF_ERROR(tokenizer->Init());
  return tokenizer;
}

}  // namespace baton::tokenizer
