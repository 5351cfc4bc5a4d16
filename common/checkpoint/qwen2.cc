// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: Llama's block with biases on q, k and v. Their GGUF keeps
// the rows of q and k as trained, so both formats rotate halves.
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/family.h"

namespace baton::checkpoint {
namespace {

constexpr std::string_view kQwen2 = "qwen2";

absl::StatusOr<ModelConfig> ParseQwen2Hf(const JsonFields& fields) {
  BATON_ASSIGN_OR_RETURN(const bool slides, fields.Bool("use_sliding_window", false));
  if (slides) {
    return absl::UnimplementedError(
        absl::StrCat(std::string(fields.source()), ": use_sliding_window is not supported"));
  }
  BATON_ASSIGN_OR_RETURN(ModelConfig config, LlamaLikeHfConfig(fields, kQwen2));
  config.qkv_bias = true;
  return config;
}

absl::StatusOr<ModelConfig> ParseQwen2Gguf(const GgufMetadata& metadata) {
  BATON_ASSIGN_OR_RETURN(ModelConfig config, CommonGgufConfig(metadata, kQwen2));
  BATON_ASSIGN_OR_RETURN(config.rotary_dims, metadata.Uint("qwen2.rope.dimension_count", 1,
                                                           config.head_dim, config.head_dim));
  config.rope_style = RopeStyle::kHalves;
  return config;
}

}  // namespace

const Family& Qwen2Family() {
  static const Family* const family = new Family{.architecture = kQwen2,
                                                 .hf_model_type = "qwen2",
                                                 .hf_names = LlamaFamily().hf_names,
                                                 .gguf_names = GgufNames(),
                                                 .parse_hf = ParseQwen2Hf,
                                                 .parse_gguf = ParseQwen2Gguf};
  return *family;
}

}  // namespace baton::checkpoint
