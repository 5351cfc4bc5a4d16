// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/hf_tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/end_tokens.h"
#include "common/checkpoint/json.h"
#include "common/tokenizer/byte_bpe.h"
#include "common/tokenizer/spm.h"

namespace baton::checkpoint {
namespace {

using tokenizer::AddedToken;
using tokenizer::TokenKind;
using tokenizer::Vocabulary;
using Merges = std::vector<std::pair<std::string, std::string>>;
using TokenizerOr = absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>>;

constexpr uint64_t kMaxTokenId = (1 << 22) - 1;

struct Table {
  std::vector<std::string> texts;
  std::vector<TokenKind> kinds;
};

absl::StatusOr<Table> ReadTable(const Json& vocabulary) {
  Table table;
  for (const auto& [text, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > kMaxTokenId) {
      return absl::InvalidArgumentError("a token of the vocabulary has a bad id");
    }
    const auto index = id.get<size_t>();
    if (index >= table.texts.size()) {
      table.texts.resize(index + 1);
      table.kinds.resize(index + 1, TokenKind::kUnused);
    }
    if (table.kinds[index] != TokenKind::kUnused) {
      return absl::InvalidArgumentError(absl::StrCat("two tokens have the id ", index));
    }
    table.texts[index] = text;
    table.kinds[index] = TokenKind::kNormal;
  }
  return table;
}

absl::StatusOr<std::pair<std::string, std::string>> SplitMerge(std::string_view line) {
  const size_t space = line.find(' ', 1);
  if (space == std::string_view::npos) return absl::InvalidArgumentError("a merge is not a pair");
  return std::pair(std::string(line.substr(0, space)), std::string(line.substr(space + 1)));
}

absl::StatusOr<Merges> ReadMerges(const Json& list) {
  Merges merges;
  for (const Json& merge : list) {
    if (merge.is_string()) {
      BATON_ASSIGN_OR_RETURN(merges.emplace_back(),
                             SplitMerge(merge.get_ref<const std::string&>()));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      return absl::InvalidArgumentError("a merge is not a pair");
    }
  }
  return merges;
}

std::string TypeOf(const Json& object) {
  return object.is_object() && object.contains("type") && object["type"].is_string()
             ? object["type"].get<std::string>()
             : std::string();
}

// The parts of a Sequence under `key`, or the one object itself.
std::vector<Json> Parts(const Json& json, const char* list_key) {
  if (json.is_null()) return {};
  if (TypeOf(json) != "Sequence") return {json};
  if (!json.contains(list_key) || !json[list_key].is_array()) return {};
  return {json[list_key].begin(), json[list_key].end()};
}

std::string SplitExpression(const Json& split) {
  const Json::json_pointer pointer("/pattern/Regex");
  return split.contains(pointer) && split[pointer].is_string() ? split[pointer].get<std::string>()
                                                               : std::string();
}

bool HasFlag(const Json& object, const char* key, bool fallback) {
  return object.contains(key) && object[key].is_boolean() ? object[key].get<bool>() : fallback;
}

// The name of the pre-tokenizer that a tokenizer.json spells out.
absl::StatusOr<std::string> RecognizePreTokenizer(const Json& json) {
  constexpr std::string_view kHead = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
  constexpr std::string_view kTail =
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const std::vector<Json> parts = Parts(json, "pretokenizers");
  const auto unknown = absl::UnimplementedError("its pre_tokenizer is not known here");
  if (parts.empty() || TypeOf(parts.back()) != "ByteLevel" ||
      HasFlag(parts.back(), "add_prefix_space", true)) {
    return unknown;
  }
  const bool gpt2_expression = HasFlag(parts.back(), "use_regex", true);
  if (parts.size() == 1 && gpt2_expression) return "gpt-2";
  if (parts.size() != 2) return unknown;
  if (TypeOf(parts[0]) == "Digits" && HasFlag(parts[0], "individual_digits", false) &&
      gpt2_expression) {
    return "smollm";
  }
  const std::string expression = SplitExpression(parts[0]);
  if (TypeOf(parts[0]) != "Split" || gpt2_expression || !expression.starts_with(kHead) ||
      !expression.ends_with(kTail)) {
    return unknown;
  }
  const std::string_view digits =
      std::string_view(expression)
          .substr(kHead.size(), expression.size() - kHead.size() - kTail.size());
  if (digits == "\\p{N}{1,3}") return "llama-bpe";
  if (digits == "\\p{N}") return "qwen2";
  return unknown;
}

// The special token that the post-processor puts first.
std::string TemplateBos(const Json& post_processor) {
  for (const Json& part : Parts(post_processor, "processors")) {
    const Json::json_pointer pointer("/single/0/SpecialToken/id");
    if (TypeOf(part) == "TemplateProcessing" && part.contains(pointer) &&
        part[pointer].is_string()) {
      return part[pointer].get<std::string>();
    }
  }
  return {};
}

std::vector<AddedToken> ReadAddedTokens(const Json& list) {
  std::vector<AddedToken> tokens;
  for (const Json& json : list) {
    if (!json.is_object() || !json.contains("id") || !json["id"].is_number_unsigned() ||
        json["id"].get<uint64_t>() > kMaxTokenId || !json.contains("content") ||
        !json["content"].is_string()) {
      continue;
    }
    tokens.push_back({json["content"].get<std::string>(), json["id"].get<TokenId>(),
                      HasFlag(json, "special", true)});
  }
  return tokens;
}

absl::StatusOr<Vocabulary> MakeVocabulary(Table table, const std::vector<AddedToken>& in_file,
                                          const HfTokenizerSettings& settings) {
  BATON_RETURN_IF_ERROR(Vocabulary::Add(in_file, table.texts, table.kinds));
  BATON_RETURN_IF_ERROR(Vocabulary::Add(settings.added_tokens, table.texts, table.kinds));
  return Vocabulary::Make(std::move(table.texts), std::move(table.kinds));
}

tokenizer::SequenceTokens MakeSequenceTokens(const Vocabulary& vocabulary,
                                             const HfTokenizerSettings& settings,
                                             const std::string& template_bos) {
  tokenizer::SequenceTokens tokens;
  tokens.end_tokens = settings.end_tokens;
  AddConventionalEndTokens(vocabulary, tokens.end_tokens);
  const std::string& name = template_bos.empty() ? settings.bos_name : template_bos;
  const auto bos = vocabulary.FindControl(name);
  if (settings.adds_bos.value_or(!template_bos.empty()) && bos.has_value()) tokens.prefix = {*bos};
  return tokens;
}

// Llama's tokenizer.json: sentencepiece's pieces in BPE's clothes. A piece's
// score is the rank of the first merge that makes it, which is how the file
// was made from scores.
TokenizerOr MakeSpm(Table table, const Merges& merges, const Json& root,
                    const HfTokenizerSettings& settings) {
  bool prepends = false;
  for (const Json& part : Parts(root.value("normalizer", Json()), "normalizers")) {
    const std::string type = TypeOf(part);
    if (type != "Prepend" && type != "Replace") {
      return absl::UnimplementedError(absl::StrCat("its normalizer ", type, " is not known here"));
    }
    prepends = prepends || type == "Prepend";
  }
  for (size_t id = 0; id < table.texts.size(); ++id) {
    const std::string& text = table.texts[id];
    if (text.size() == 6 && text.starts_with("<0x")) table.kinds[id] = TokenKind::kByte;
    if (text == "<unk>") table.kinds[id] = TokenKind::kUnknown;
  }
  std::unordered_map<std::string, float> rank_of;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    rank_of.try_emplace(merges[rank].first + merges[rank].second, static_cast<float>(rank));
  }
  BATON_ASSIGN_OR_RETURN(
      Vocabulary vocabulary,
      MakeVocabulary(std::move(table), ReadAddedTokens(root.value("added_tokens", Json::array())),
                     settings));
  tokenizer::SpmOptions options;
  options.add_dummy_prefix = prepends;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto rank = rank_of.find(vocabulary.text(id));
    options.scores.push_back(rank == rank_of.end() ? -static_cast<float>(merges.size())
                                                   : -rank->second);
  }
  options.sequence_tokens =
      MakeSequenceTokens(vocabulary, settings, TemplateBos(root.value("post_processor", Json())));
  return MakeSpmTokenizer(std::move(vocabulary), std::move(options));
}

TokenizerOr MakeByteBpe(Table table, Merges merges, const Json& root,
                        const HfTokenizerSettings& settings) {
  tokenizer::ByteBpeOptions options;
  for (const Json& part : Parts(root.value("normalizer", Json()), "normalizers")) {
    if (TypeOf(part) != "NFC") {
      return absl::UnimplementedError(
          absl::StrCat("its normalizer ", TypeOf(part), " is not known here"));
    }
    options.nfc = true;
  }
  BATON_ASSIGN_OR_RETURN(
      Vocabulary vocabulary,
      MakeVocabulary(std::move(table), ReadAddedTokens(root.value("added_tokens", Json::array())),
                     settings));
  BATON_ASSIGN_OR_RETURN(options.pre_tokenizer,
                         RecognizePreTokenizer(root.value("pre_tokenizer", Json())));
  options.merges = std::move(merges);
  options.sequence_tokens =
      MakeSequenceTokens(vocabulary, settings, TemplateBos(root.value("post_processor", Json())));
  return MakeByteBpeTokenizer(std::move(vocabulary), std::move(options));
}

}  // namespace

TokenizerOr LoadTokenizerJson(const File& file, const HfTokenizerSettings& settings) {
  BATON_ASSIGN_OR_RETURN(const Json root, ParseJsonObject(file.text(), file.name));
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object() || !model->contains("vocab") ||
      !(*model)["vocab"].is_object() || !model->contains("merges") ||
      !(*model)["merges"].is_array()) {
    return absl::UnimplementedError("only BPE models in tokenizer.json are supported");
  }
  BATON_ASSIGN_OR_RETURN(Table table, ReadTable((*model)["vocab"]));
  BATON_ASSIGN_OR_RETURN(Merges merges, ReadMerges((*model)["merges"]));
  return HasFlag(*model, "byte_fallback", false)
             ? MakeSpm(std::move(table), merges, root, settings)
             : MakeByteBpe(std::move(table), std::move(merges), root, settings);
}

TokenizerOr LoadVocabAndMerges(const File& vocabulary_file, const File& merges,
                               std::string_view pre_tokenizer,
                               const HfTokenizerSettings& settings) {
  BATON_ASSIGN_OR_RETURN(const Json json,
                         ParseJsonObject(vocabulary_file.text(), vocabulary_file.name));
  BATON_ASSIGN_OR_RETURN(Table table, ReadTable(json));
  BATON_ASSIGN_OR_RETURN(Vocabulary vocabulary, MakeVocabulary(std::move(table), {}, settings));
  tokenizer::ByteBpeOptions options;
  options.pre_tokenizer = pre_tokenizer;
  options.nfc = pre_tokenizer == "qwen2";  // as its published code does
  std::string_view rest = merges.text();
  for (bool first = true; !rest.empty(); first = false) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    BATON_ASSIGN_OR_RETURN(options.merges.emplace_back(), SplitMerge(line));
  }
  options.sequence_tokens = MakeSequenceTokens(vocabulary, settings, "");
  return MakeByteBpeTokenizer(std::move(vocabulary), std::move(options));
}

}  // namespace baton::checkpoint
