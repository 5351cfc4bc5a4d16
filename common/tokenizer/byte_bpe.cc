// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/byte_bpe.h"

#include <array>
#include <optional>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/tokenizer/character.h"
#include "common/tokenizer/merge.h"
#include "common/tokenizer/normalize.h"
#include "common/tokenizer/pre_tokenizer.h"

namespace baton::tokenizer {
namespace {

bool IsPrintableLatin1(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// GPT-2 writes each byte as a printable character: printable Latin-1 as
// itself, the rest in order from U+0100 on.
struct ByteAlphabet {
  ByteAlphabet() {
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int code = IsPrintableLatin1(byte) ? byte : next++;
      std::string& text = texts[byte];
      if (code < 0x80) {
        text.assign(1, static_cast<char>(code));
      } else {
        text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
      }
      bytes.emplace(text, static_cast<char>(byte));
    }
  }

  // The bytes that a token's text stands for; characters outside the alphabet
  // stand for themselves.
  std::string Decode(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      const size_t length = CharacterLength(text);
      const auto found = bytes.find(std::string(text.substr(0, length)));
      if (found != bytes.end()) {
        out += found->second;
      } else {
        out += text.substr(0, length);
      }
      text.remove_prefix(length);
    }
    return out;
  }

  std::array<std::string, 256> texts;
  absl::flat_hash_map<std::string, char> bytes;
};

const ByteAlphabet& Alphabet() {
  static const ByteAlphabet* const alphabet = new ByteAlphabet();
  return *alphabet;
}

uint64_t PairKey(TokenId left, TokenId right) { return static_cast<uint64_t>(left) << 32 | right; }

class ByteBpeTokenizer final : public Tokenizer {
 public:
  ByteBpeTokenizer(Vocabulary vocabulary, SequenceTokens sequence_tokens, bool nfc)
      : vocabulary_(std::move(vocabulary)),
        user_defined_(vocabulary_),
        sequence_tokens_(std::move(sequence_tokens)),
        nfc_(nfc) {}

  absl::Status Init(const ByteBpeOptions& options);

  std::string_view kind() const override { return "bpe"; }
  uint32_t size() const override { return vocabulary_.size(); }
  std::vector<TokenId> Encode(std::string_view text, bool first) const override;
  std::string TokenBytes(TokenId id) const override { return id < size() ? bytes_[id] : ""; }
  bool drops_leading_space() const override { return false; }
  std::optional<TokenId> TokenByName(std::string_view name) const override {
    return vocabulary_.FindControl(name);
  }
  bool IsControl(TokenId id) const override { return vocabulary_.IsControl(id); }
  const std::vector<TokenId>& prefix() const override { return sequence_tokens_.prefix; }
  const std::vector<TokenId>& end_tokens() const override { return sequence_tokens_.end_tokens; }

 private:
  struct RankedMerge {
    uint32_t rank;
    TokenId id;
  };

  absl::Status AddMerge(uint32_t rank, const std::string& left, const std::string& right);
  void IndexBytes();
  void EncodeWord(std::string_view word, Merger& merger, std::vector<Symbol>& symbols,
                  std::vector<TokenId>& ids) const;

  const Vocabulary vocabulary_;
  const UserDefinedTokens user_defined_;
  const SequenceTokens sequence_tokens_;
  const bool nfc_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  absl::flat_hash_map<uint64_t, RankedMerge> merges_;
  std::vector<std::string> bytes_;                       // by token: what it decodes to
  std::array<TokenId, 256> byte_tokens_{};               // by byte
  std::unordered_map<std::string_view, TokenId> words_;  // by bytes; only where merges are ignored
};

absl::Status ByteBpeTokenizer::AddMerge(uint32_t rank, const std::string& left,
                                        const std::string& right) {
  const auto left_id = vocabulary_.FindText(left), right_id = vocabulary_.FindText(right);
  const auto merged = vocabulary_.FindText(left + right);
  if (!left_id.has_value() || !right_id.has_value() || !merged.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("merge ", rank, " joins or makes a token that the vocabulary lacks"));
  }
  merges_.try_emplace(PairKey(*left_id, *right_id), RankedMerge{rank, *merged});
  return absl::OkStatus();
}

void ByteBpeTokenizer::IndexBytes() {
  bytes_.resize(size());
  for (TokenId id = 0; id < size(); ++id) {
    const TokenKind kind = vocabulary_.kind(id);
    if (kind == TokenKind::kControl) continue;
    bytes_[id] = kind == TokenKind::kUserDefined ? vocabulary_.text(id)
                                                 : Alphabet().Decode(vocabulary_.text(id));
    if (kind == TokenKind::kNormal && pre_tokenizer_->ignores_merges()) {
      words_.try_emplace(bytes_[id], id);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary_.FindText(Alphabet().texts[byte]).value_or(kNoToken);
  }
}

absl::Status ByteBpeTokenizer::Init(const ByteBpeOptions& options) {
  BATON_RETURN_IF_ERROR(vocabulary_.CheckIds(sequence_tokens_));
  BATON_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::Make(options.pre_tokenizer));
  merges_.reserve(options.merges.size());
  for (uint32_t rank = 0; rank < options.merges.size(); ++rank) {
    const auto& [left, right] = options.merges[rank];
    BATON_RETURN_IF_ERROR(AddMerge(rank, left, right));
  }
  IndexBytes();
  return absl::OkStatus();
}

void ByteBpeTokenizer::EncodeWord(std::string_view word, Merger& merger,
                                  std::vector<Symbol>& symbols, std::vector<TokenId>& ids) const {
  if (pre_tokenizer_->ignores_merges()) {
    const auto found = words_.find(word);
    if (found != words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  symbols.clear();
  for (uint32_t i = 0; i < word.size(); ++i) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(word[i])];
    // Bytes that no UTF-8 text holds may have no token; others always do.
    if (id != kNoToken) symbols.push_back({i, 1, id});
  }
  merger.Run(symbols, [this](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto found = merges_.find(PairKey(left.id, right.id));
    if (found == merges_.end()) return std::nullopt;
    return Merge{static_cast<double>(found->second.rank), found->second.id};
  });
  for (const Symbol& symbol : symbols) ids.push_back(symbol.id);
}

std::vector<TokenId> ByteBpeTokenizer::Encode(std::string_view text, bool /*first*/) const {
  const std::string repaired = IsValidUtf8(text) ? std::string() : ReplaceInvalidUtf8(text);
  if (!repaired.empty()) text = repaired;
  std::vector<TokenId> ids;
  std::vector<Symbol> symbols;
  Merger merger;
  for (const UserDefinedTokens::Part& part : user_defined_.Split(text)) {
    if (part.token.has_value()) {
      ids.push_back(*part.token);
      continue;
    }
    const std::string normal = nfc_ ? NormalizeNfc(part.text) : std::string();
    for (std::string_view word : pre_tokenizer_->Split(nfc_ ? normal : part.text)) {
      EncodeWord(word, merger, symbols, ids);
    }
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeByteBpeTokenizer(Vocabulary vocabulary,
                                                                ByteBpeOptions options) {
  auto tokenizer = std::make_unique<ByteBpeTokenizer>(
      std::move(vocabulary), std::move(options.sequence_tokens), options.nfc);
  BATON_RETURN_IF_ERROR(tokenizer->Init(options));
  return tokenizer;
}

}  // namespace baton::tokenizer
