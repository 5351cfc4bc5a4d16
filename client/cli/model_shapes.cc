// SPDX-License-Identifier: Apache-2.0
#include "client/cli/model_shapes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::cli {
namespace {

using checkpoint::ModelConfig;
using checkpoint::RopeStyle;

// What the shapes of one architecture have in common.
ModelConfig ChatGlm() {
  ModelConfig config;
  config.architecture = "chatglm";
  config.rope_style = RopeStyle::kAdjacentPairs;
  config.qkv_bias = true;
  return config;
}

ModelConfig Llama() {
  ModelConfig config;
  config.architecture = "llama";
  config.rope_style = RopeStyle::kAdjacentPairs;  // as GGUF has it
  return config;
}

ModelConfig ChatGlm2() {
  ModelConfig config = ChatGlm();
  config.name = "chatglm2-6b";
  config.layers = 28;
  config.hidden = 4096;
  config.heads = 32;
  config.kv_heads = 2;
  config.head_dim = 128;
  config.ffn = 13'696;
  config.vocabulary = 65'024;
  config.context = 32'768;
  config.rotary_dims = 64;
  return config;
}

ModelConfig Llama2() {
  ModelConfig config = Llama();
  config.name = "llama2-7b";
  config.layers = 32;
  config.hidden = 4096;
  config.heads = 32;
  config.kv_heads = 32;
  config.head_dim = 128;
  config.ffn = 11'008;
  config.vocabulary = 32'000;
  config.context = 4096;
  config.rotary_dims = 128;
  return config;
}

ModelConfig SmolLm2() {
  ModelConfig config = Llama();
  config.name = "smollm2-135m";
  config.layers = 30;
  config.hidden = 576;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.ffn = 1536;
  config.vocabulary = 49'152;
  config.context = 8192;
  config.rotary_dims = 64;
  config.rope_base = 100'000;
  config.tied_head = true;
  return config;
}

ModelConfig Tiny() {
  ModelConfig config = ChatGlm();
  config.name = "tiny";
  config.layers = 3;
  config.hidden = 128;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.ffn = 352;
  config.vocabulary = 256;
  config.context = 512;
  config.rotary_dims = 16;
  return config;
}

std::vector<ModelConfig> Shapes() { return {ChatGlm2(), Llama2(), SmolLm2(), Tiny()}; }

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const ModelConfig& shape : Shapes()) names.push_back(shape.name);
  return names;
}

absl::StatusOr<ModelConfig> FindShape(const std::string& name) {
  for (const ModelConfig& shape : Shapes()) {
    if (shape.name == name) return shape;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "shape must be one of ", absl::StrJoin(ShapeNames(), ", "), ", got \"", name, "\""));
}

}  // namespace baton::cli
