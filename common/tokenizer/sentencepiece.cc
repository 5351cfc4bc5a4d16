// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/sentencepiece.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/tokenizer/piece.h"
#include "common/tokenizer/sentencepiece_library.h"

namespace baton::tokenizer {
namespace {

void AppendBytes(void* context, const char* bytes, size_t count) {
  static_cast<std::string*>(context)->append(bytes, count);
}

void AssignIds(void* context, const int* ids, size_t count) {
  static_cast<std::vector<TokenId>*>(context)->assign(ids, ids + count);
}

// Owns one processor of the library.
class Processor {
 public:
  static absl::StatusOr<Processor> Open(const std::string& model) {
    BATON_ASSIGN_OR_RETURN(const BatonSpApi* api, SentencePieceLibrary());
    std::string error;
    void* handle = api->open(model.data(), model.size(), AppendBytes, &error);
    if (handle == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("not a sentencepiece model: ", error));
    }
    return Processor(api, handle);
  }
  Processor(Processor&& other) noexcept
      : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Processor& operator=(Processor&&) = delete;
  ~Processor() {
    if (handle_ != nullptr) api_->close(handle_);
  }

  uint32_t size() const { return api_->size(handle_); }
  bool drops_leading_space() const { return api_->drops_leading_space(handle_) != 0; }

  std::string Piece(TokenId id) const {
    std::string piece;
    api_->piece(handle_, id, AppendBytes, &piece);
    return piece;
  }

  TokenKind Kind(TokenId id) const {
    switch (api_->kind(handle_, id)) {
      case kBatonSpUnknown:
        return TokenKind::kUnknown;
      case kBatonSpControl:
        return TokenKind::kControl;
      case kBatonSpUnused:
        return TokenKind::kUnused;
      case kBatonSpByte:
        return TokenKind::kByte;
      default:
        return TokenKind::kNormal;
    }
  }

  std::vector<TokenId> Encode(std::string_view text) const {
    std::vector<TokenId> ids;
    api_->encode(handle_, text.data(), text.size(), AssignIds, &ids);
    return ids;
  }

 private:
  Processor(const BatonSpApi* api, void* handle) : api_(api), handle_(handle) {}

  const BatonSpApi* api_;
  void* handle_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, Processor processor, Vocabulary vocabulary)
      : model_(std::move(model)),
        processor_(std::move(processor)),
        vocabulary_(std::move(vocabulary)),
        drops_leading_space_(processor_.drops_leading_space()) {}

  absl::Status Init(const SentencePieceOptions& options);

  std::string_view kind() const override { return "sentencepiece"; }
  uint32_t size() const override { return vocabulary_.size(); }
  std::vector<TokenId> Encode(std::string_view text, bool first) const override;
  std::string TokenBytes(TokenId id) const override { return PieceBytes(vocabulary_, id); }
  bool IsByte(TokenId id) const override {
    return id < size() && vocabulary_.kind(id) == TokenKind::kByte;
  }
  bool drops_leading_space() const override { return drops_leading_space_; }
  std::optional<TokenId> TokenByName(std::string_view name) const override {
    return vocabulary_.FindControl(name);
  }
  bool IsControl(TokenId id) const override { return vocabulary_.IsControl(id); }
  const std::vector<TokenId>& prefix() const override { return sequence_tokens_.prefix; }
  const std::vector<TokenId>& end_tokens() const override { return sequence_tokens_.end_tokens; }

 private:
  absl::Status AddByName(const std::vector<std::string>& names, std::vector<TokenId>& ids) const;
  const Processor& WithoutDummyPrefix() const;

  const std::string model_;
  const Processor processor_;
  const Vocabulary vocabulary_;
  const bool drops_leading_space_;
  SequenceTokens sequence_tokens_;

  mutable std::once_flag bare_once_;
  mutable std::optional<Processor> bare_;  // made when first asked for
};

absl::Status SentencePieceTokenizer::AddByName(const std::vector<std::string>& names,
                                               std::vector<TokenId>& ids) const {
  for (const std::string& name : names) {
    const std::optional<TokenId> id = TokenByName(name);
    if (!id.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the tokenizer has no control token \"", name, "\""));
    }
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::Init(const SentencePieceOptions& options) {
  BATON_RETURN_IF_ERROR(AddByName(options.prefix, sequence_tokens_.prefix));
  sequence_tokens_.end_tokens = options.end_token_ids;
  if (sequence_tokens_.end_tokens.empty() && TokenByName("</s>").has_value()) {
    sequence_tokens_.end_tokens.push_back(*TokenByName("</s>"));
  }
  BATON_RETURN_IF_ERROR(AddByName(options.end_tokens, sequence_tokens_.end_tokens));
  return vocabulary_.CheckIds(sequence_tokens_);
}

// The library has no switch for the dummy prefix, but protobuf merges a message
// that stands twice: ModelProto.normalizer_spec (3).add_dummy_prefix (3) = false
// behind the model wins over what stands inside.
const Processor& SentencePieceTokenizer::WithoutDummyPrefix() const {
  std::call_once(bare_once_, [this] {
    constexpr char kNoDummyPrefix[] = {0x1A, 0x02, 0x18, 0x00};
    auto opened = Processor::Open(model_ + std::string(kNoDummyPrefix, sizeof(kNoDummyPrefix)));
    if (opened.ok()) bare_.emplace(*std::move(opened));
  });
  return bare_.has_value() ? *bare_ : processor_;
}

std::vector<TokenId> SentencePieceTokenizer::Encode(std::string_view text, bool first) const {
  const std::string repaired = IsValidUtf8(text) ? std::string() : ReplaceInvalidUtf8(text);
  if (!repaired.empty()) text = repaired;
  const Processor& processor = first || !drops_leading_space_ ? processor_ : WithoutDummyPrefix();
  return processor.Encode(text);
}

absl::StatusOr<Vocabulary> ReadVocabulary(const Processor& processor,
                                          const SentencePieceOptions& options) {
  const uint32_t pieces = processor.size();
  std::vector<std::string> texts;
  std::vector<TokenKind> kinds;
  for (TokenId id = 0; id < pieces; ++id) {
    texts.push_back(processor.Piece(id));
    kinds.push_back(processor.Kind(id));
  }
  BATON_RETURN_IF_ERROR(Vocabulary::Add(options.added_tokens, texts, kinds));
  return Vocabulary::Make(std::move(texts), std::move(kinds));
}

}  // namespace

std::vector<AddedToken> ChatGlmControlTokens(TokenId first_id, bool roles) {
  constexpr const char* kNames[] = {"[MASK]",   "[gMASK]",       "[sMASK]",
                                    "sop",      "eop",           "<|system|>",
                                    "<|user|>", "<|assistant|>", "<|observation|>"};
  constexpr size_t kWithoutRoles = 5;
  std::vector<AddedToken> tokens;
  for (const char* name : kNames) {
    if (!roles && tokens.size() == kWithoutRoles) break;
    tokens.push_back({name, first_id + static_cast<TokenId>(tokens.size())});
  }
  return tokens;
}

absl::StatusOr<uint32_t> SentencePieceCount(std::span<const std::byte> model) {
  BATON_ASSIGN_OR_RETURN(
      const Processor processor,
      Processor::Open(std::string(reinterpret_cast<const char*>(model.data()), model.size())));
  return processor.size();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(std::span<const std::byte> model,
                                                             const SentencePieceOptions& options) {
  std::string copy(reinterpret_cast<const char*>(model.data()), model.size());
  BATON_ASSIGN_OR_RETURN(Processor processor, Processor::Open(copy));
  BATON_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(processor, options));
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(std::move(copy), std::move(processor),
                                                            std::move(vocabulary));
  BATON_RETURN_IF_ERROR(tokenizer->Init(options));
  return tokenizer;
}

}  // namespace baton::tokenizer
