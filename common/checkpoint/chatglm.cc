// SPDX-License-Identifier: Apache-2.0
// ChatGLM2 and ChatGLM3 (THUDM; modeling_chatglm.py and configuration_chatglm.py).
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/family.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kChatGlm = "chatglm";

// Fields of config.json with the one value that this block can compute.
absl::Status CheckChatGlmFields(const JsonFields& fields) {
  constexpr struct {
    const char* field;
    bool value;
  } kFixed[] = {{"rmsnorm", true},
                {"post_layer_norm", true},
                {"apply_residual_connection_post_layernorm", false},
                {"add_bias_linear", false},
                {"original_rope", true}};
  const auto unsupported = [&](std::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(std::string(fields.source()), ": ", std::string(what), " is not supported"));
  };
  for (const auto& [field, value] : kFixed) {
    BATON_ASSIGN_OR_RETURN(const bool actual, fields.Bool(field, value));
    if (actual != value) return unsupported(absl::StrCat(field, " = ", actual ? "true" : "false"));
  }
  BATON_ASSIGN_OR_RETURN(const uint32_t virtual_tokens,
                         fields.Uint("pre_seq_len", 0, UINT32_MAX, 0));
  if (virtual_tokens != 0) return unsupported(absl::StrCat("pre_seq_len = ", virtual_tokens));
  BATON_ASSIGN_OR_RETURN(const uint32_t bits, fields.Uint("quantization_bit", 0, UINT32_MAX, 0));
  if (bits != 0 && bits != 4 && bits != 8) {
    return unsupported(absl::StrCat("quantization_bit = ", bits));
  }
  return absl::OkStatus();
}

// ChatGLM3 and GLM-4 multiply the base by rope_ratio. ChatGLM2's 32k sibling
// has a field of the same name that stretches positions instead.
absl::StatusOr<double> ChatGlmRopeBase(const JsonFields& fields) {
  BATON_ASSIGN_OR_RETURN(const double ratio, fields.Number("rope_ratio", 1.0));
  BATON_ASSIGN_OR_RETURN(const std::string origin, fields.String("_name_or_path", ""));
  if (ratio != 1.0 && origin.find("chatglm2") != std::string::npos) {
    return absl::UnimplementedError(absl::StrCat(
        std::string(fields.source()), ": ChatGLM2 with interpolated positions (rope_ratio ", ratio,
        ") is not supported"));
  }
  return 10'000.0 * ratio;
}

absl::StatusOr<ModelConfig> ParseChatGlmHf(const JsonFields& fields) {
  using Limits = ConfigLimits;
  BATON_RETURN_IF_ERROR(CheckChatGlmFields(fields));
  ModelConfig config;
  config.architecture = kChatGlm;
  BATON_ASSIGN_OR_RETURN(config.layers, fields.Uint("num_layers", 1, Limits::kLayers));
  BATON_ASSIGN_OR_RETURN(config.hidden, fields.Uint("hidden_size", 1, Limits::kHidden));
  BATON_ASSIGN_OR_RETURN(config.heads, fields.Uint("num_attention_heads", 1, Limits::kHeads));
  BATON_ASSIGN_OR_RETURN(const bool multi_query, fields.Bool("multi_query_attention", false));
  config.kv_heads = config.heads;
  if (multi_query) {
    BATON_ASSIGN_OR_RETURN(config.kv_heads,
                           fields.Uint("multi_query_group_num", 1, Limits::kHeads));
  }
  BATON_ASSIGN_OR_RETURN(config.head_dim, fields.Uint("kv_channels", 2, Limits::kHeadDim));
  BATON_ASSIGN_OR_RETURN(config.ffn, fields.Uint("ffn_hidden_size", 1, Limits::kFfn));
  BATON_ASSIGN_OR_RETURN(config.vocabulary,
                         fields.Uint("padded_vocab_size", 1, Limits::kVocabulary));
  BATON_ASSIGN_OR_RETURN(config.context, fields.Uint("seq_length", 1, Limits::kContext));
  config.rotary_dims = config.head_dim / 2;
  config.rope_style = RopeStyle::kAdjacentPairs;
  BATON_ASSIGN_OR_RETURN(config.rope_base, ChatGlmRopeBase(fields));
  BATON_ASSIGN_OR_RETURN(const double epsilon, fields.Number("layernorm_epsilon", 1e-5));
  config.norm_epsilon = static_cast<float>(epsilon);
  BATON_ASSIGN_OR_RETURN(config.qkv_bias, fields.Bool("add_qkv_bias", false));
  BATON_ASSIGN_OR_RETURN(config.tied_head, fields.Bool("tie_word_embeddings", false));
  BATON_ASSIGN_OR_RETURN(config.end_tokens, HfEndTokens(fields, config.vocabulary));
  BATON_ASSIGN_OR_RETURN(config.row_quant_bits, fields.Uint("quantization_bit", 0, 8, 0));
  return config;
}

absl::StatusOr<ModelConfig> ParseChatGlmGguf(const GgufMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(ModelConfig config, CommonGgufConfig(metadata, kChatGlm));
  BATON_ASSIGN_OR_RETURN(config.rotary_dims, metadata.Uint("chatglm.rope.dimension_count", 1,
                                                           config.head_dim, config.head_dim / 2));
  return config;
}

// q, k and v are one matrix, gate and up another.
TensorNames FusedGgufNames() {
  TensorNames names = GgufNames();
  names.qkv = "attn_qkv";
  names.q = names.k = names.v = "";
  names.gate_up = names.up;
  names.gate = names.up = "";
  return names;
}

}  // namespace

const Family& ChatGlmFamily() {
  static const Family* const family =
      new Family{.architecture = kChatGlm,
                 .hf_model_type = "chatglm",
                 .hf_names = {.embedding = "transformer.embedding.word_embeddings",
                              .final_norm = "transformer.encoder.final_layernorm",
                              .head = "transformer.output_layer",
                              .layer_prefix = "transformer.encoder.layers.",
                              .attention_norm = "input_layernorm",
                              .ffn_norm = "post_attention_layernorm",
                              .qkv = "self_attention.query_key_value",
                              .q = "",
                              .k = "",
                              .v = "",
                              .attention_out = "self_attention.dense",
                              .gate_up = "mlp.dense_h_to_4h",
                              .gate = "",
                              .up = "",
                              .down = "mlp.dense_4h_to_h",
                              .ignored = {"rotary_pos_emb.inv_freq"}},
                 .gguf_names = FusedGgufNames(),
                 .parse_hf = ParseChatGlmHf,
                 .parse_gguf = ParseChatGlmGguf};
  return *family;
}

}  // namespace baton::checkpoint
