// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/gguf_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/end_tokens.h"
#include "common/tokenizer/byte_bpe.h"
#include "common/tokenizer/spm.h"

namespace baton::checkpoint {
namespace {

using tokenizer::SequenceTokens;
using tokenizer::TokenKind;
using tokenizer::Vocabulary;

constexpr const char* kModelKey = "tokenizer.ggml.model";

// GGUF's other names for a pre-tokenizer that exists here.
std::string_view CanonicalPreTokenizer(std::string_view name) {
  if (name == "llama3" || name == "llama-v3") return "llama-bpe";
  if (name == "deepseek-r1-qwen") return "qwen2";
  return name;
}

absl::StatusOr<std::vector<TokenKind>> ReadKinds(const GgufMetadata& metadata, size_t count) {
  constexpr TokenKind kByNumber[] = {TokenKind::kNormal,  TokenKind::kUnknown,
                                     TokenKind::kControl, TokenKind::kUserDefined,
                                     TokenKind::kUnused,  TokenKind::kByte};
  BATON_ASSIGN_OR_RETURN(const auto* types, metadata.Ints("tokenizer.ggml.token_type"));
  std::vector<TokenKind> kinds;
  for (size_t id = 0; types != nullptr && id < types->size(); ++id) {
    const int64_t type = (*types)[id];
    if (type < 1 || type > static_cast<int64_t>(std::size(kByNumber))) {
      return absl::InvalidArgumentError(absl::StrCat(metadata.file(), ": token ", id, " has type ",
                                                     type, ", which does not exist"));
    }
    kinds.push_back(kByNumber[type - 1]);
  }
  if (types == nullptr) kinds.assign(count, TokenKind::kNormal);
  // Tokens that begin or end a sequence are control tokens, whatever the list
  // of types says, so that no text becomes one.
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                          "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (!metadata.Has(key)) continue;
    BATON_ASSIGN_OR_RETURN(const uint32_t id, metadata.Uint(key, 0, UINT32_MAX));
    if (id < kinds.size()) kinds[id] = TokenKind::kControl;
  }
  return kinds;
}

absl::StatusOr<Vocabulary> ReadVocabulary(const GgufMetadata& metadata, const ModelConfig& config) {
  BATON_ASSIGN_OR_RETURN(const auto* tokens, metadata.Strings("tokenizer.ggml.tokens"));
  if (tokens == nullptr || tokens->size() > config.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        metadata.file(), ": tokenizer.ggml.tokens must hold 1 to ", config.vocabulary, " tokens"));
  }
  BATON_ASSIGN_OR_RETURN(std::vector<TokenKind> kinds, ReadKinds(metadata, tokens->size()));
  return Vocabulary::Make(std::vector<std::string>(tokens->begin(), tokens->end()),
                          std::move(kinds));
}

absl::StatusOr<SequenceTokens> ReadSequenceTokens(const GgufMetadata& metadata,
                                                  const ModelConfig& config,
                                                  const Vocabulary& vocabulary,
                                                  bool adds_bos_by_default) {
  SequenceTokens tokens;
  tokens.end_tokens = config.end_tokens;
  AddConventionalEndTokens(vocabulary, tokens.end_tokens);
  const auto mask = vocabulary.FindControl("[gMASK]"), sop = vocabulary.FindControl("sop");
  if (config.architecture == "chatglm" && mask.has_value() && sop.has_value()) {
    tokens.prefix = {*mask, *sop};
    return tokens;
  }
  BATON_ASSIGN_OR_RETURN(const bool adds_bos,
                         metadata.Bool("tokenizer.ggml.add_bos_token", adds_bos_by_default));
  constexpr const char* kBos = "tokenizer.ggml.bos_token_id";
  if (adds_bos && metadata.Has(kBos)) {
    BATON_ASSIGN_OR_RETURN(const uint32_t bos, metadata.Uint(kBos, 0, vocabulary.size() - 1));
    tokens.prefix = {bos};
  }
  return tokens;
}

absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadSpm(const GgufMetadata& metadata,
                                                              const ModelConfig& config) {
  BATON_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(metadata, config));
  tokenizer::SpmOptions options;
  BATON_ASSIGN_OR_RETURN(options.add_dummy_prefix,
                         metadata.Bool("tokenizer.ggml.add_space_prefix", true));
  BATON_ASSIGN_OR_RETURN(options.sequence_tokens, ReadSequenceTokens(metadata, config, vocabulary,
                                                                     /*adds_bos_by_default=*/true));
  BATON_ASSIGN_OR_RETURN(const auto* scores, metadata.Numbers("tokenizer.ggml.scores"));
  if (scores != nullptr) options.scores.assign(scores->begin(), scores->end());
  return MakeSpmTokenizer(std::move(vocabulary), std::move(options));
}

absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadByteBpe(const GgufMetadata& metadata,
                                                                  const ModelConfig& config) {
  BATON_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(metadata, config));
  tokenizer::ByteBpeOptions options;
  BATON_ASSIGN_OR_RETURN(const std::string_view name,
                         metadata.String("tokenizer.ggml.pre", "default"));
  options.pre_tokenizer = CanonicalPreTokenizer(name);
  BATON_ASSIGN_OR_RETURN(
      options.sequence_tokens,
      ReadSequenceTokens(metadata, config, vocabulary,
                         /*adds_bos_by_default=*/options.pre_tokenizer == "llama-bpe"));
  BATON_ASSIGN_OR_RETURN(const auto* merges, metadata.Strings("tokenizer.ggml.merges"));
  if (merges == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(metadata.file(), ": tokenizer.ggml.merges is missing"));
  }
  for (const std::string_view merge : *merges) {
    // The alphabet has no space, but a merge may begin with one in odd files.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(metadata.file(), ": merge ", options.merges.size(), " is not a pair"));
    }
    options.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return MakeByteBpeTokenizer(std::move(vocabulary), std::move(options));
}

}  // namespace

bool HasGgufTokenizer(const GgufMetadata& metadata) {
  const auto model = metadata.String(kModelKey, "none");
  return !model.ok() || *model != "none";
}

absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadGgufTokenizer(
    const GgufMetadata& metadata, const ModelConfig& config) {
  if (!HasGgufTokenizer(metadata)) return nullptr;
  BATON_ASSIGN_OR_RETURN(const std::string_view model, metadata.String(kModelKey, std::nullopt));
  if (model == "llama") return LoadSpm(metadata, config);
  if (model == "gpt2") return LoadByteBpe(metadata, config);
  return absl::UnimplementedError(absl::StrCat(metadata.file(), ": tokenizer \"",
                                               std::string(model),
                                               "\" is not supported; supported are llama, gpt2"));
}

}  // namespace baton::checkpoint
