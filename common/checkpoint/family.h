// SPDX-License-Identifier: Apache-2.0
// A model family: how its checkpoints spell configuration and tensors. A new
// family is one file and one line in families.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/json.h"

namespace baton::checkpoint {

// Names of a family's tensors in one format, without ".weight" and ".bias".
// Those of a block stand behind `layer_prefix`, the block's number and a dot.
// Either `qkv` or `q`, `k`, `v` are set, and either `gate_up` or `gate`, `up`.
struct TensorNames {
  std::string_view embedding, final_norm, head, layer_prefix;
  std::string_view attention_norm, ffn_norm;
  std::string_view qkv, q, k, v, attention_out;
  std::string_view gate_up, gate, up, down;
  // Suffixes of tensors that are recomputed and need no reading.
  std::vector<std::string_view> ignored;
};

struct Family {
  std::string_view architecture;
  std::string_view hf_model_type;  // "model_type" of config.json
  TensorNames hf_names, gguf_names;
  // Without the name. Errors: INVALID_ARGUMENT, or UNIMPLEMENTED for a field
  // that would make it another model than the block description can say.
  absl::StatusOr<ModelConfig> (*parse_hf)(const JsonFields& fields);
  absl::StatusOr<ModelConfig> (*parse_gguf)(const GgufMetadata& metadata);
};

const Family& ChatGlmFamily();
const Family& LlamaFamily();
const Family& Qwen2Family();

// UNIMPLEMENTED with the list of supported architectures.
absl::StatusOr<const Family*> FindFamilyByHfType(std::string_view model_type);
absl::StatusOr<const Family*> FindFamilyByGgufArchitecture(std::string_view architecture);

// What all families of one format share. `end_tokens` of a config.json is a
// number or a list.
absl::StatusOr<std::vector<TokenId>> HfEndTokens(const JsonFields& fields, uint32_t vocabulary);
// The fields that config.json of Llama and of its relatives has; refuses those
// that would make it another block. Biases are left to the family.
absl::StatusOr<ModelConfig> LlamaLikeHfConfig(const JsonFields& fields,
                                              std::string_view architecture);
// GGUF names tensors alike in all families; these are of a block that fuses
// nothing.
TensorNames GgufNames();
absl::Status CheckGgufIsPlain(const GgufMetadata& metadata, std::string_view architecture);
absl::StatusOr<ModelConfig> CommonGgufConfig(const GgufMetadata& metadata,
                                             std::string_view architecture);

// Limits that keep every later product and division sane.
struct ConfigLimits {
  static constexpr uint32_t kLayers = 1024, kHidden = 1 << 17, kHeads = 1024, kHeadDim = 1024;
  static constexpr uint32_t kFfn = 1 << 20, kVocabulary = 1 << 22, kContext = 1 << 24;
};

// INVALID_ARGUMENT, with `source` and the field, when numbers do not fit each
// other: heads and KV heads, rotary dimensions, epsilon, RoPE base, end tokens.
absl::Status CheckConfig(const ModelConfig& config, std::string_view source);

// Looks every tensor up and compares it with the configuration. Every tensor
// of the checkpoint has to be used or on the list of ignored ones: an unknown
// one means another model.
absl::StatusOr<ModelWeights> MapWeights(const ModelConfig& config, const TensorNames& names,
                                        const std::vector<TensorView>& tensors);

}  // namespace baton::checkpoint
