// SPDX-License-Identifier: Apache-2.0
// Names and shapes of every format against real and made checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/json.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/testing/test_data.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;
using testing::SharedData;

std::vector<float> Rows(const LinearView& view) {
  const uint64_t columns = view.tensor->shape[1];
  std::vector<float> values(view.rows * columns);
  DequantizeRange(*view.tensor, view.row_begin * columns, values);
  return values;
}

std::unique_ptr<Checkpoint> Open(const std::string& path) {
  auto opened = OpenCheckpoint(path);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

absl::Status WeightsOf(const GgufBuilder& builder) {
  const TempFolder folder;
  const auto opened = OpenCheckpoint(folder.Write("m.gguf", builder.Build()));
  return opened.ok() ? (*opened)->Weights().status() : opened.status();
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max<double>(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

TEST(Weights, FusedMatricesAreCutIntoRows) {
  const auto checkpoint = Open("embedded");
  ASSERT_NE(checkpoint, nullptr);
  const auto weights = checkpoint->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(weights->layers.size(), 3u);
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(layer.q.tensor, layer.v.tensor);
  EXPECT_EQ(layer.q.row_begin, 0u);
  EXPECT_EQ(layer.q.rows, 96u);
  EXPECT_EQ(layer.k.row_begin, 96u);
  EXPECT_EQ(layer.k.rows, 32u);
  EXPECT_EQ(layer.v.row_begin, 128u);
  EXPECT_NE(layer.v.bias, nullptr);
  EXPECT_EQ(layer.v.bias->shape, (std::vector<uint64_t>{160}));
  EXPECT_EQ(layer.gate.row_begin, 0u);
  EXPECT_EQ(layer.up.row_begin, 256u);
  EXPECT_EQ(layer.up.rows, 256u);
  EXPECT_EQ(layer.attention_out.bias, nullptr);
  EXPECT_NE(weights->head.tensor, weights->embedding);
}

TEST(Weights, EveryElementTypeOfTheTinyChatGlmAgrees) {
  const std::string folder = SharedData("models/golden-chatglm2-tiny/a");
  BATON_NEED_DATA(folder);
  const auto exact = Open(folder);
  const TempFolder sharded;
  sharded.Link("config.json", folder + "/config.json");
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json"}) {
    sharded.Link(name, folder + "/sharded/" + name);
  }
  const struct {
    std::string path;
    double tolerance;  // relative to values of about 4 at most
  } kFiles[] = {{folder + "/model.f16.safetensors", 2e-3},
                {folder + "/pytorch_model.f16.bin", 2e-3},
                {folder + "/model.bf16.safetensors", 2e-2},
                {sharded.path(), 0}};
  const auto expected = exact->Weights();
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const auto& [path, tolerance] : kFiles) {
    const auto other = Open(path);
    ASSERT_NE(other, nullptr);
    const auto weights = other->Weights();
    ASSERT_TRUE(weights.ok()) << path << weights.status();
    for (size_t i = 0; i < expected->layers.size(); ++i) {
      EXPECT_LE(LargestDifference(Rows(expected->layers[i].k), Rows(weights->layers[i].k)),
                tolerance)
          << path;
      EXPECT_LE(LargestDifference(Rows(expected->layers[i].up), Rows(weights->layers[i].up)),
                tolerance)
          << path;
    }
    EXPECT_LE(LargestDifference(Rows(expected->head), Rows(weights->head)), tolerance) << path;
  }
}

TEST(Weights, HeadsNeedNotFillTheHiddenSize) {
  const std::string folder = SharedData("models/golden-chatglm2-tiny/b");
  BATON_NEED_DATA(folder);
  const auto checkpoint = Open(folder);
  const auto weights = checkpoint->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->layers[0].q.rows, 144u);
  EXPECT_EQ(weights->layers[0].attention_out.tensor->shape, (std::vector<uint64_t>{48, 144}));
  EXPECT_EQ(checkpoint->config().rotary_dims, 12u);
}

// Row of the HF layout (halves) of row `row` of the GGUF layout (pairs).
uint64_t HalvesRow(uint64_t row, uint64_t head_dim) {
  const uint64_t head = row / head_dim, within = row % head_dim;
  return head * head_dim + within / 2 + within % 2 * (head_dim / 2);
}

TEST(Weights, StoriesAgreeAcrossFormatsAndTypes) {
  const std::string folder = SharedData("models/stories260k");
  BATON_NEED_DATA(folder);
  const auto hf = Open(folder + "/hf");
  const auto expected = hf->Weights();
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(hf->config().rope_style, RopeStyle::kHalves);
  EXPECT_TRUE(hf->config().tied_head);
  EXPECT_EQ(expected->head.tensor, expected->embedding);
  const struct {
    const char* file;
    double tolerance;
  } kFiles[] = {{"stories260K.F32.gguf", 0},
                {"stories260K.F16.gguf", 1e-3},
                {"stories260K-ffn192.Q8_0.gguf", 2e-2},
                {"stories260K-ffn192.Q4_0.gguf", 0.3}};
  for (const auto& [file, tolerance] : kFiles) {
    const auto gguf = Open(folder + "/gguf/" + file);
    const auto weights = gguf->Weights();
    ASSERT_TRUE(weights.ok()) << file << weights.status();
    EXPECT_EQ(gguf->config().rope_style, RopeStyle::kAdjacentPairs);
    EXPECT_EQ(gguf->config().end_tokens, (std::vector<TokenId>{2}));
    for (size_t i = 0; i < weights->layers.size(); ++i) {
      EXPECT_LE(LargestDifference(Rows(expected->layers[i].v), Rows(weights->layers[i].v)),
                tolerance)
          << file;
      const std::vector<float> halves = Rows(expected->layers[i].q),
                               pairs = Rows(weights->layers[i].q);
      std::vector<float> permuted;
      for (uint64_t row = 0; row < 64; ++row) {
        const auto from = halves.begin() + static_cast<ptrdiff_t>(HalvesRow(row, 8) * 64);
        permuted.insert(permuted.end(), from, from + 64);
      }
      EXPECT_LE(LargestDifference(permuted, pairs), tolerance) << file;
    }
  }
}

TEST(Weights, DemoModelIsUnderstood) {
  const std::string path = testing::DemoModel();
  BATON_NEED_DATA(path);
  const auto checkpoint = Open(path);
  ASSERT_NE(checkpoint, nullptr);
  const auto weights = checkpoint->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->layers.size(), 30u);
  EXPECT_EQ(weights->layers[0].q.tensor->type, TensorType::kQ4_1);
  EXPECT_EQ(weights->embedding->type, TensorType::kQ8_0);
  EXPECT_EQ(weights->head.tensor, weights->embedding);
  EXPECT_EQ(checkpoint->config().rope_base, 100'000.0);
  EXPECT_EQ(checkpoint->config().vocabulary, 49'152u);
  EXPECT_EQ(checkpoint->file_bytes(), 98'362'432u);
  const auto format = checkpoint->DetectChatFormat();
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(format->name, "chatml");
  EXPECT_EQ(format->options.default_system,
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
}

// A Qwen2 checkpoint of one layer as Hugging Face's names have it, `extra` in its
// config.json; without the bias of k if asked.
absl::Status OpenTinyQwen2(const std::string& extra, bool k_bias, ModelConfig* config) {
  const std::string layer = "model.layers.0.";
  std::vector<std::pair<std::string, std::vector<int>>> tensors = {
      {"model.embed_tokens.weight", {6, 8}},
      {"model.norm.weight", {8}},
      {"lm_head.weight", {6, 8}},
      {layer + "input_layernorm.weight", {8}},
      {layer + "post_attention_layernorm.weight", {8}},
      {layer + "self_attn.q_proj.weight", {8, 8}},
      {layer + "self_attn.q_proj.bias", {8}},
      {layer + "self_attn.k_proj.weight", {4, 8}},
      {layer + "self_attn.v_proj.weight", {4, 8}},
      {layer + "self_attn.v_proj.bias", {4}},
      {layer + "self_attn.o_proj.weight", {8, 8}},
      {layer + "mlp.gate_proj.weight", {16, 8}},
      {layer + "mlp.up_proj.weight", {16, 8}},
      {layer + "mlp.down_proj.weight", {8, 16}}};
  if (k_bias) tensors.push_back({layer + "self_attn.k_proj.bias", {4}});
  Json header = Json::object();
  size_t bytes = 0;
  for (const auto& [name, shape] : tensors) {
    size_t size = 4;
    for (int extent : shape) size *= static_cast<size_t>(extent);
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {bytes, bytes + size}}};
    bytes += size;
  }
  const TempFolder folder;
  folder.Write("model.safetensors", Safetensors(header.dump(), std::string(bytes, '\0')));
  folder.Write("config.json", R"({"model_type": "qwen2", "num_hidden_layers": 1, "hidden_size": 8,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size": 6,
    "max_position_embeddings": 32, "rope_theta": 1000000.0, "rms_norm_eps": 1e-06,
    "tie_word_embeddings": false, "eos_token_id": 2, "hidden_act": "silu")" +
                                  extra + "}");
  const auto opened = OpenCheckpoint(folder.path());
  if (!opened.ok()) return opened.status();
  *config = (*opened)->config();
  const auto weights = (*opened)->Weights();
  if (!weights.ok()) return weights.status();
  EXPECT_NE(weights->layers[0].k.bias, nullptr);
  return absl::OkStatus();
}

TEST(Weights, Qwen2OfHuggingFaceHasBiasesOnQkv) {
  ModelConfig config;
  const absl::Status status = OpenTinyQwen2(R"(, "use_sliding_window": false)", true, &config);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.architecture, "qwen2");
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_EQ(config.rope_style, RopeStyle::kHalves);
  EXPECT_EQ(config.rotary_dims, 4u);
  EXPECT_EQ(config.rope_base, 1e6);
  EXPECT_THAT(std::string(OpenTinyQwen2("", false, &config).message()),
              HasSubstr("self_attn.k_proj.bias\" is missing"));
  EXPECT_THAT(
      std::string(OpenTinyQwen2(R"(, "use_sliding_window": true)", true, &config).message()),
      HasSubstr("use_sliding_window"));
}

TEST(Weights, QwenIsUnderstood) {
  const std::string path = testing::QwenModel();
  BATON_NEED_MODEL(path);
  const auto checkpoint = Open(path);
  ASSERT_NE(checkpoint, nullptr);
  const auto weights = checkpoint->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  const ModelConfig& config = checkpoint->config();
  EXPECT_EQ(config.architecture, "qwen2");
  EXPECT_EQ(config.rope_style, RopeStyle::kHalves);
  EXPECT_EQ(config.rotary_dims, 128u);
  EXPECT_EQ(config.rope_base, 1e6);
  EXPECT_EQ(config.end_tokens, (std::vector<TokenId>{151'645}));
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(weights->layers.size(), 28u);
  EXPECT_NE(weights->layers[27].v.bias, nullptr);
  EXPECT_EQ(weights->layers[0].attention_out.bias, nullptr);
  EXPECT_EQ(weights->layers[0].q.tensor->type, TensorType::kQ4K);
  EXPECT_EQ(weights->embedding->type, TensorType::kQ4K);
  EXPECT_EQ(weights->head.tensor->type, TensorType::kQ6K);
  const auto format = checkpoint->DetectChatFormat();
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(format->name, "chatml");
  EXPECT_EQ(format->options.default_system,
            "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
}

TEST(Weights, GgufChatGlmIsMappedToTheSameBlock) {
  const std::string floats(4096, '\0');
  const auto bytes = [&](size_t values) { return floats.substr(0, values * 4); };
  GgufBuilder builder;
  builder.String("general.architecture", "chatglm")
      .Uint32("chatglm.context_length", 32)
      .Uint32("chatglm.embedding_length", 8)
      .Uint32("chatglm.block_count", 1)
      .Uint32("chatglm.feed_forward_length", 16)
      .Uint32("chatglm.attention.head_count", 2)
      .Uint32("chatglm.attention.head_count_kv", 1)
      .Uint32("chatglm.vocab_size", 6)
      .Uint32("chatglm.rope.dimension_count", 2)
      .Float32("chatglm.attention.layer_norm_rms_epsilon", 1e-5f)
      .Tensor("token_embd.weight", {8, 6}, bytes(48))
      .Tensor("output_norm.weight", {8}, bytes(8))
      .Tensor("output.weight", {8, 6}, bytes(48))
      .Tensor("blk.0.attn_norm.weight", {8}, bytes(8))
      .Tensor("blk.0.attn_qkv.weight", {8, 16}, bytes(128))
      .Tensor("blk.0.attn_qkv.bias", {16}, bytes(16))
      .Tensor("blk.0.attn_output.weight", {8, 8}, bytes(64))
      .Tensor("blk.0.ffn_norm.weight", {8}, bytes(8))
      .Tensor("blk.0.ffn_up.weight", {8, 32}, bytes(256))
      .Tensor("blk.0.ffn_down.weight", {16, 8}, bytes(128));
  const TempFolder folder;
  const auto checkpoint = Open(folder.Write("glm.gguf", builder.Build()));
  ASSERT_NE(checkpoint, nullptr);
  const auto weights = checkpoint->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_TRUE(checkpoint->config().qkv_bias);
  EXPECT_FALSE(checkpoint->config().tied_head);
  EXPECT_EQ(checkpoint->config().rotary_dims, 2u);
  EXPECT_EQ(weights->layers[0].v.row_begin, 12u);
  EXPECT_EQ(weights->layers[0].up.row_begin, 16u);
}

TEST(Weights, ErrorsNameTheTensor) {
  using enum absl::StatusCode;
  const std::string floats(64, '\0');
  GgufBuilder missing = TinyLlamaKeys();
  EXPECT_THAT(std::string(WeightsOf(missing).message()),
              HasSubstr("\"token_embd.weight\" is missing"));

  GgufBuilder wrong_shape = TinyLlamaKeys();
  wrong_shape.Tensor("token_embd.weight", {6, 8}, std::string(192, '\0'));
  EXPECT_THAT(std::string(WeightsOf(wrong_shape).message()),
              HasSubstr("\"token_embd.weight\" has shape [8, 6], not [6, 8]"));

  GgufBuilder unknown = TinyLlamaKeys();
  AddTinyLlamaTensors(unknown);
  unknown.Tensor("blk.0.attn_q_norm.weight", {8}, std::string(32, '\0'));
  EXPECT_THAT(std::string(WeightsOf(unknown).message()), HasSubstr("blk.0.attn_q_norm.weight"));

  GgufBuilder unsupported = TinyLlamaKeys();  // 24 is I8
  unsupported.Tensor("token_embd.weight", {8, 6}, std::string(48, '\0'), 24);
  const absl::Status status = WeightsOf(unsupported);
  EXPECT_EQ(status.code(), kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"token_embd.weight\" has type I8"));
}

// The configuration of a Llama in Hugging Face's words, with `more` fields.
absl::StatusOr<double> RopeBaseOf(const std::string& more) {
  const TempFolder folder;
  folder.Write("config.json", R"({"model_type":"llama","hidden_size":8,"intermediate_size":16,)"
                              R"("num_hidden_layers":1,"num_attention_heads":2,"vocab_size":6,)"
                              R"("max_position_embeddings":32)" +
                                  more + "}");
  folder.Write("model.safetensors", Safetensors("{}", ""));
  const auto opened = OpenCheckpoint(folder.path());
  if (!opened.ok()) return opened.status();
  return (*opened)->config().rope_base;
}

TEST(Weights, BaseOfRopeIsFoundWhereEitherVersionPutsIt) {
  EXPECT_EQ(RopeBaseOf("").value(), 10'000.0);
  EXPECT_EQ(RopeBaseOf(R"(,"rope_theta":500000.0,"rope_scaling":null)").value(), 500'000.0);
  EXPECT_EQ(RopeBaseOf(R"(,"rope_parameters":{"rope_type":"default","rope_theta":7e4})").value(),
            70'000.0);
  for (const char* scaled : {R"(,"rope_scaling":{"type":"linear","factor":2.0})",
                             R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":7e4})"}) {
    EXPECT_EQ(RopeBaseOf(scaled).status().code(), absl::StatusCode::kUnimplemented) << scaled;
  }
}

TEST(Weights, KeysThatMakeAnotherModelAreRefused) {
  const auto refused = [](GgufBuilder builder, const std::string& text) {
    const absl::Status status = WeightsOf(builder);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused(TinyLlamaKeys().Uint32("llama.expert_count", 8), "expert_count");
  refused(TinyLlamaKeys().String("llama.rope.scaling.type", "yarn"), "rope.scaling.type");
  refused(TinyLlamaKeys().Float32("llama.rope.scale_linear", 4), "rope.scale_linear");
  refused(TinyLlamaKeys().Raw("split.count", 2, Bytes<uint16_t>(3)), "split.count");
}

}  // namespace
}  // namespace baton::checkpoint
