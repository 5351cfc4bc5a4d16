// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/family.h"

namespace baton::checkpoint {
namespace {

constexpr auto kFamilies = {ChatGlmFamily, LlamaFamily, Qwen2Family};

absl::StatusOr<const Family*> Find(std::string_view name,
                                   std::string_view Family::*name_of_family) {
  std::string supported;
  for (const auto family : kFamilies) {
    if (family().*name_of_family == name) return &family();
    absl::StrAppend(&supported, supported.empty() ? "" : ", ",
                    std::string(family().*name_of_family));
  }
  return absl::UnimplementedError(absl::StrCat("architecture \"", std::string(name),
                                               "\" is not supported; supported are ", supported));
}

std::string Key(std::string_view architecture, std::string_view field) {
  return absl::StrCat(std::string(architecture), ".", std::string(field));
}

}  // namespace

absl::StatusOr<const Family*> FindFamilyByHfType(std::string_view model_type) {
  return Find(model_type, &Family::hf_model_type);
}

absl::StatusOr<const Family*> FindFamilyByGgufArchitecture(std::string_view architecture) {
  return Find(architecture, &Family::architecture);
}

absl::StatusOr<std::vector<TokenId>> HfEndTokens(const JsonFields& fields, uint32_t vocabulary) {
  constexpr const char* kField = "eos_token_id";
  std::vector<TokenId> ids;
  if (!fields.Has(kField)) return ids;
  const Json& value = fields.object().at(kField);
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(fields.source()), ": ", kField,
                                                     " must be ids below ", vocabulary));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

TensorNames GgufNames() {
  return {.embedding = "token_embd",
          .final_norm = "output_norm",
          .head = "output",
          .layer_prefix = "blk.",
          .attention_norm = "attn_norm",
          .ffn_norm = "ffn_norm",
          .qkv = "",
          .q = "attn_q",
          .k = "attn_k",
          .v = "attn_v",
          .attention_out = "attn_output",
          .gate_up = "",
          .gate = "ffn_gate",
          .up = "ffn_up",
          .down = "ffn_down",
          .ignored = {}};
}

absl::Status CheckGgufIsPlain(const GgufMetadata& metadata, std::string_view architecture) {
  const auto unsupported = [&](std::string_view key, std::string_view what) {
    return absl::UnimplementedError(absl::StrCat(metadata.file(), ": ", std::string(key), ": ",
                                                 std::string(what), " is not supported"));
  };
  BATON_ASSIGN_OR_RETURN(const uint32_t parts, metadata.Uint("split.count", 0, 65'535, 1));
  if (parts > 1) return unsupported("split.count", "a GGUF in several files (merge them first)");
  const std::string experts = Key(architecture, "expert_count");
  BATON_ASSIGN_OR_RETURN(const uint32_t expert_count, metadata.Uint(experts, 0, 65'535, 0));
  if (expert_count > 0) return unsupported(experts, "a mixture of experts");
  const std::string scaling = Key(architecture, "rope.scaling.type");
  BATON_ASSIGN_OR_RETURN(const std::string_view scaling_type, metadata.String(scaling, "none"));
  if (scaling_type != "none") return unsupported(scaling, "a scaled RoPE");
  const std::string linear = Key(architecture, "rope.scale_linear");
  BATON_ASSIGN_OR_RETURN(const double scale, metadata.Number(linear, 1.0));
  if (scale != 1.0) return unsupported(linear, "a scaled RoPE");
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> CommonGgufConfig(const GgufMetadata& metadata,
                                             std::string_view architecture) {
  using Limits = ConfigLimits;
  BATON_RETURN_IF_ERROR(CheckGgufIsPlain(metadata, architecture));
  const auto uint = [&](std::string_view field, uint32_t high,
                        std::optional<uint32_t> fallback = std::nullopt) {
    return metadata.Uint(Key(architecture, field), 1, high, fallback);
  };
  ModelConfig config;
  config.architecture = architecture;
  config.rope_style = RopeStyle::kAdjacentPairs;
  BATON_ASSIGN_OR_RETURN(config.layers, uint("block_count", Limits::kLayers));
  BATON_ASSIGN_OR_RETURN(config.hidden, uint("embedding_length", Limits::kHidden));
  BATON_ASSIGN_OR_RETURN(config.heads, uint("attention.head_count", Limits::kHeads));
  BATON_ASSIGN_OR_RETURN(config.kv_heads,
                         uint("attention.head_count_kv", Limits::kHeads, config.heads));
  BATON_ASSIGN_OR_RETURN(config.ffn, uint("feed_forward_length", Limits::kFfn));
  BATON_ASSIGN_OR_RETURN(config.context, uint("context_length", Limits::kContext));
  const uint32_t even_share = std::max(1u, config.hidden / config.heads);
  BATON_ASSIGN_OR_RETURN(config.head_dim,
                         uint("attention.key_length", Limits::kHeadDim, even_share));
  BATON_ASSIGN_OR_RETURN(const uint32_t value_dim,
                         uint("attention.value_length", Limits::kHeadDim, config.head_dim));
  if (value_dim != config.head_dim) {
    return absl::UnimplementedError(absl::StrCat(metadata.file(), ": keys of ", config.head_dim,
                                                 " and values of ", value_dim, " elements"));
  }
  BATON_ASSIGN_OR_RETURN(config.rope_base,
                         metadata.Number(Key(architecture, "rope.freq_base"), 10'000.0));
  BATON_ASSIGN_OR_RETURN(
      const double epsilon,
      metadata.Number(Key(architecture, "attention.layer_norm_rms_epsilon"), std::nullopt));
  config.norm_epsilon = static_cast<float>(epsilon);

  BATON_ASSIGN_OR_RETURN(const auto* tokens, metadata.Strings("tokenizer.ggml.tokens"));
  std::optional<uint32_t> token_count;
  if (tokens != nullptr && !tokens->empty()) token_count = static_cast<uint32_t>(tokens->size());
  BATON_ASSIGN_OR_RETURN(config.vocabulary, uint("vocab_size", Limits::kVocabulary, token_count));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!metadata.Has(key)) continue;
    BATON_ASSIGN_OR_RETURN(const TokenId id, metadata.Uint(key, 0, config.vocabulary - 1));
    if (config.end_tokens.empty() || config.end_tokens.front() != id) {
      config.end_tokens.push_back(id);
    }
  }
  return config;
}

absl::Status CheckConfig(const ModelConfig& config, std::string_view source) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(source), ": ", std::string(what)));
  };
  if (config.heads % config.kv_heads != 0) {
    return error(
        absl::StrCat(config.heads, " attention heads cannot share ", config.kv_heads, " KV heads"));
  }
  if (config.rotary_dims == 0 || config.rotary_dims % 2 != 0 ||
      config.rotary_dims > config.head_dim) {
    return error(
        absl::StrCat(config.rotary_dims, " rotary dimensions in heads of ", config.head_dim));
  }
  if (!(config.norm_epsilon > 0 && config.norm_epsilon < 1)) {
    return error("the norm's epsilon must be between 0 and 1");
  }
  if (!(std::isfinite(config.rope_base) && config.rope_base >= 1)) {
    return error("the base of RoPE must be at least 1");
  }
  for (TokenId id : config.end_tokens) {
    if (id >= config.vocabulary) {
      return error(absl::StrCat("end token ", id, " in a vocabulary of ", config.vocabulary));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::checkpoint
