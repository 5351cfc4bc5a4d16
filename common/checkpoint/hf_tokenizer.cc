// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/hf_tokenizer.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/chat_template.h"
#include "common/checkpoint/hf_tokenizer_json.h"
#include "common/checkpoint/json.h"
#include "common/tokenizer/sentencepiece.h"

namespace baton::checkpoint {
namespace {

using tokenizer::AddedToken;
using TokenizerOr = absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>>;

constexpr const char kConfig[] = "tokenizer_config.json";

// An empty object when the file is absent.
absl::StatusOr<Json> ReadOptionalJson(const Folder& folder, const char* name) {
  if (!folder.Has(name)) return Json::object();
  BATON_ASSIGN_OR_RETURN(const File file, folder.Open(name));
  return ParseJsonObject(file.text(), file.name);
}

// tokenizer_config.json's "added_tokens_decoder": id in decimal → token.
std::vector<AddedToken> AddedTokens(const Json& config) {
  std::vector<AddedToken> tokens;
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || !decoder->is_object()) return tokens;
  for (const auto& [id_text, json] : decoder->items()) {
    AddedToken token;
    if (absl::SimpleAtoi(id_text, &token.id) && json.is_object() && json.contains("content") &&
        json["content"].is_string()) {
      token.text = json["content"].get<std::string>();
      token.control = !json.contains("special") || json["special"] == true;
      tokens.push_back(std::move(token));
    }
  }
  return tokens;
}

bool IsChatGlm3(const Folder& folder, const ModelConfig& config) {
  const auto format = DetectHfChatFormat(folder, config);
  return format.ok() && format->name == "chatglm3";
}

TokenizerOr LoadChatGlm(const Folder& folder, const ModelConfig& config, const File& model) {
  const bool roles = IsChatGlm3(folder, config);
  BATON_ASSIGN_OR_RETURN(const uint32_t pieces, tokenizer::SentencePieceCount(model.bytes));
  tokenizer::SentencePieceOptions options;
  options.added_tokens = tokenizer::ChatGlmControlTokens(pieces, roles);
  options.prefix = {"[gMASK]", "sop"};
  options.end_token_ids = config.end_tokens;
  if (roles) options.end_tokens = {"<|user|>", "<|observation|>"};
  return LoadSentencePiece(model.bytes, options);
}

TokenizerOr LoadLlamaSentencePiece(const Folder& folder, const ModelConfig& config,
                                   const File& model) {
  BATON_ASSIGN_OR_RETURN(const Json json, ReadOptionalJson(folder, kConfig));
  tokenizer::SentencePieceOptions options;
  options.added_tokens = AddedTokens(json);
  options.end_token_ids = config.end_tokens;
  for (const AddedToken& token : options.added_tokens) {
    if (token.control && token.text == "<|im_end|>") options.end_tokens.push_back(token.text);
  }
  BATON_ASSIGN_OR_RETURN(const bool adds_bos,
                         JsonFields(json, kConfig).Bool("add_bos_token", true));
  if (adds_bos) options.prefix = {"<s>"};
  return LoadSentencePiece(model.bytes, options);
}

TokenizerOr LoadAny(const Folder& folder, const ModelConfig& config) {
  if (folder.Has("tokenizer.model")) {
    BATON_ASSIGN_OR_RETURN(const File model, folder.Open("tokenizer.model"));
    return config.architecture == "chatglm" ? LoadChatGlm(folder, config, model)
                                            : LoadLlamaSentencePiece(folder, config, model);
  }
  BATON_ASSIGN_OR_RETURN(const Json json, ReadOptionalJson(folder, kConfig));
  HfTokenizerSettings settings{.end_tokens = config.end_tokens,
                               .added_tokens = AddedTokens(json),
                               .adds_bos = std::nullopt,
                               .bos_name = {}};
  const JsonFields fields(json, kConfig);
  if (fields.Has("add_bos_token")) {
    BATON_ASSIGN_OR_RETURN(settings.adds_bos, fields.Bool("add_bos_token", false));
  }
  if (json.contains("bos_token") && json["bos_token"].is_string()) {
    settings.bos_name = json["bos_token"].get<std::string>();
  }
  if (folder.Has("tokenizer.json")) {
    BATON_ASSIGN_OR_RETURN(const File file, folder.Open("tokenizer.json"));
    return LoadTokenizerJson(file, settings);
  }
  if (folder.Has("vocab.json") && folder.Has("merges.txt")) {
    BATON_ASSIGN_OR_RETURN(const File vocabulary, folder.Open("vocab.json"));
    BATON_ASSIGN_OR_RETURN(const File merges, folder.Open("merges.txt"));
    BATON_ASSIGN_OR_RETURN(const std::string model_class, fields.String("tokenizer_class", ""));
    const bool qwen2 = model_class.starts_with("Qwen2");
    return LoadVocabAndMerges(vocabulary, merges, qwen2 ? "qwen2" : "gpt-2", settings);
  }
  return nullptr;
}

// The published name of the model a checkpoint came from; saved copies keep it.
absl::StatusOr<std::string> PublishedNames(const Folder& folder) {
  std::string names;
  for (const char* file : {"config.json", kConfig}) {
    BATON_ASSIGN_OR_RETURN(const Json json, ReadOptionalJson(folder, file));
    for (const char* key : {"_name_or_path", "name_or_path"}) {
      BATON_ASSIGN_OR_RETURN(const std::string name, JsonFields(json, file).String(key, ""));
      absl::StrAppend(&names, name, "\n");
    }
  }
  return names;
}

// The text of the template, or nothing. "chat_template" may be a list of named
// templates, of which the default counts.
std::string ChatTemplate(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return {};
  for (const Json& named : *found) {
    if (named.is_object() && named.contains("name") && named["name"] == "default" &&
        named.contains("template") && named["template"].is_string()) {
      return named["template"].get<std::string>();
    }
  }
  return {};
}

}  // namespace

bool HasHfTokenizer(const Folder& folder) {
  return folder.Has("tokenizer.model") || folder.Has("tokenizer.json") ||
         (folder.Has("vocab.json") && folder.Has("merges.txt"));
}

TokenizerOr LoadHfTokenizer(const Folder& folder, const ModelConfig& config) {
  auto loaded = LoadAny(folder, config);
  const auto error = [&](std::string_view what) {
    return absl::Status(
        loaded.ok() ? absl::StatusCode::kInvalidArgument : loaded.status().code(),
        absl::StrCat("tokenizer of ", std::string(folder.name()), ": ", std::string(what)));
  };
  if (!loaded.ok()) return error(std::string(loaded.status().message()));
  if (*loaded != nullptr && (*loaded)->size() > config.vocabulary) {
    return error(absl::StrCat((*loaded)->size(), " tokens for a model of ", config.vocabulary));
  }
  return loaded;
}

absl::StatusOr<Checkpoint::ChatFormat> DetectHfChatFormat(const Folder& folder,
                                                          const ModelConfig& config) {
  if (!HasHfTokenizer(folder)) return Checkpoint::ChatFormat{"raw", {}};
  constexpr const char kTemplateFile[] = "chat_template.jinja";
  if (folder.Has(kTemplateFile)) {
    BATON_ASSIGN_OR_RETURN(const File file, folder.Open(kTemplateFile));
    return RecognizeChatTemplate(file.text(), file.name);
  }
  BATON_ASSIGN_OR_RETURN(const Json tokenizer_config, ReadOptionalJson(folder, kConfig));
  const std::string chat_template = ChatTemplate(tokenizer_config);
  if (!chat_template.empty()) return RecognizeChatTemplate(chat_template, kConfig);
  if (config.architecture != "chatglm") return Checkpoint::ChatFormat{"raw", {}};

  BATON_ASSIGN_OR_RETURN(const std::string names, PublishedNames(folder));
  bool has_roles = false;
  for (const AddedToken& token : AddedTokens(tokenizer_config)) {
    has_roles = has_roles || token.text == "<|user|>";
  }
  const bool third = has_roles || names.find("chatglm3") != std::string::npos;
  return Checkpoint::ChatFormat{third ? "chatglm3" : "chatglm2", {}};
}

}  // namespace baton::checkpoint
