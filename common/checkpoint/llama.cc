// SPDX-License-Identifier: Apache-2.0
// Llama and what shares its block, such as SmolLM2.
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/family.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kLlama = "llama";

absl::Status CheckLlamaFields(const JsonFields& fields) {
  const auto unsupported = [&](std::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(std::string(fields.source()), ": ", std::string(what), " is not supported"));
  };
  if (fields.Has("rope_scaling")) return unsupported("rope_scaling");
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    BATON_ASSIGN_OR_RETURN(const bool biased, fields.Bool(field, false));
    if (biased) return unsupported(field);
  }
  BATON_ASSIGN_OR_RETURN(const std::string activation, fields.String("hidden_act", "silu"));
  if (activation != "silu") return unsupported(absl::StrCat("hidden_act ", activation));
  return absl::OkStatus();
}

// The base stands in the object "rope_parameters" since transformers 5, and
// beside the other fields before.
absl::StatusOr<double> LlamaRopeBase(const JsonFields& fields) {
  constexpr const char* kObject = "rope_parameters";
  if (!fields.Has(kObject)) return fields.Number("rope_theta", 10'000.0);
  const Json& object = fields.object().at(kObject);
  if (!object.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(fields.source()), ": \"", kObject, "\" must be an object"));
  }
  const JsonFields parameters(object, fields.source());
  BATON_ASSIGN_OR_RETURN(const std::string type, parameters.String("rope_type", "default"));
  if (type != "default") {
    return absl::UnimplementedError(
        absl::StrCat(std::string(fields.source()), ": rope_type ", type, " is not supported"));
  }
  return parameters.Number("rope_theta", 10'000.0);
}

absl::StatusOr<ModelConfig> ParseLlamaHf(const JsonFields& fields) {
  return LlamaLikeHfConfig(fields, kLlama);
}

absl::StatusOr<ModelConfig> ParseLlamaGguf(const GgufMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(ModelConfig config, CommonGgufConfig(metadata, kLlama));
  BATON_ASSIGN_OR_RETURN(config.rotary_dims, metadata.Uint("llama.rope.dimension_count", 1,
                                                           config.head_dim, config.head_dim));
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> LlamaLikeHfConfig(const JsonFields& fields,
                                              std::string_view architecture) {
  using Limits = ConfigLimits;
  BATON_RETURN_IF_ERROR(CheckLlamaFields(fields));
  ModelConfig config;
  config.architecture = architecture;
  BATON_ASSIGN_OR_RETURN(config.layers, fields.Uint("num_hidden_layers", 1, Limits::kLayers));
  BATON_ASSIGN_OR_RETURN(config.hidden, fields.Uint("hidden_size", 1, Limits::kHidden));
  BATON_ASSIGN_OR_RETURN(config.heads, fields.Uint("num_attention_heads", 1, Limits::kHeads));
  BATON_ASSIGN_OR_RETURN(config.kv_heads,
                         fields.Uint("num_key_value_heads", 1, Limits::kHeads, config.heads));
  const uint32_t even_share = std::max(1u, config.hidden / config.heads);
  BATON_ASSIGN_OR_RETURN(config.head_dim, fields.Uint("head_dim", 2, Limits::kHeadDim, even_share));
  BATON_ASSIGN_OR_RETURN(config.ffn, fields.Uint("intermediate_size", 1, Limits::kFfn));
  BATON_ASSIGN_OR_RETURN(config.vocabulary, fields.Uint("vocab_size", 1, Limits::kVocabulary));
  BATON_ASSIGN_OR_RETURN(config.context,
                         fields.Uint("max_position_embeddings", 1, Limits::kContext));
  config.rotary_dims = config.head_dim;
  config.rope_style = RopeStyle::kHalves;
  BATON_ASSIGN_OR_RETURN(config.rope_base, LlamaRopeBase(fields));
  BATON_ASSIGN_OR_RETURN(const double epsilon, fields.Number("rms_norm_eps", 1e-6));
  config.norm_epsilon = static_cast<float>(epsilon);
  BATON_ASSIGN_OR_RETURN(config.tied_head, fields.Bool("tie_word_embeddings", false));
  BATON_ASSIGN_OR_RETURN(config.end_tokens, HfEndTokens(fields, config.vocabulary));
  return config;
}

const Family& LlamaFamily() {
  static const Family* const family =
      new Family{.architecture = kLlama,
                 .hf_model_type = "llama",
                 .hf_names = {.embedding = "model.embed_tokens",
                              .final_norm = "model.norm",
                              .head = "lm_head",
                              .layer_prefix = "model.layers.",
                              .attention_norm = "input_layernorm",
                              .ffn_norm = "post_attention_layernorm",
                              .qkv = "",
                              .q = "self_attn.q_proj",
                              .k = "self_attn.k_proj",
                              .v = "self_attn.v_proj",
                              .attention_out = "self_attn.o_proj",
                              .gate_up = "",
                              .gate = "mlp.gate_proj",
                              .up = "mlp.up_proj",
                              .down = "mlp.down_proj",
                              .ignored = {"rotary_emb.inv_freq"}},
                 .gguf_names = GgufNames(),
                 .parse_hf = ParseLlamaHf,
                 .parse_gguf = ParseLlamaGguf};
  return *family;
}

}  // namespace baton::checkpoint
