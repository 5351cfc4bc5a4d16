// SPDX-License-Identifier: Apache-2.0
// Activations that Hugging Face's code computed for one-layer models, as the
// chatglm.cpp project keeps them for its tests: weights, then three calls of
// input ids and final hidden states.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "nlohmann/json.hpp"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

constexpr uint32_t kHidden = 32;
constexpr uint32_t kIds = 5;  // rows of the embedding in the file

// Reads the file's arrays one after another.
class DataFile {
 public:
  explicit DataFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::string Take(size_t values) {
    EXPECT_LE(at_ + 4 * values, bytes_.size());
    at_ += 4 * values;
    return bytes_.substr(at_ - 4 * values, 4 * values);
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// The identity, so that logits are the final hidden state.
std::string Identity() {
  std::vector<float> matrix(kHidden * kHidden);
  for (uint32_t i = 0; i < kHidden; ++i) matrix[i * kHidden + i] = 1;
  return std::string(reinterpret_cast<const char*>(matrix.data()), matrix.size() * sizeof(float));
}

void WriteCheckpoint(DataFile& data, const std::string& folder) {
  const std::string layer = "transformer.encoder.layers.0.";
  checkpoint::SafetensorsBuilder writer;
  std::string embedding = data.Take(kIds * kHidden);
  embedding.resize(sizeof(float) * kHidden * kHidden);  // as many rows as the head has
  writer.Tensor("transformer.embedding.word_embeddings.weight", "F32", {kHidden, kHidden},
                embedding);
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
    uint64_t count = 1;
    for (uint64_t size : shape) count *= size;
    writer.Tensor(name, "F32", shape, data.Take(count));
  };
  add(layer + "input_layernorm.weight", {kHidden});
  add(layer + "self_attention.query_key_value.weight", {48, kHidden});
  add(layer + "self_attention.query_key_value.bias", {48});
  add(layer + "self_attention.dense.weight", {kHidden, kHidden});
  add(layer + "post_attention_layernorm.weight", {kHidden});
  add(layer + "mlp.dense_h_to_4h.weight", {96, kHidden});
  add(layer + "mlp.dense_4h_to_h.weight", {kHidden, 48});
  add("transformer.encoder.final_layernorm.weight", {kHidden});
  writer.Tensor("transformer.output_layer.weight", "F32", {kHidden, kHidden}, Identity());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << writer.Build();
  std::ofstream(folder + "/config.json") << nlohmann::json{{"model_type", "chatglm"},
                                                           {"num_layers", 1},
                                                           {"padded_vocab_size", kHidden},
                                                           {"hidden_size", kHidden},
                                                           {"ffn_hidden_size", 48},
                                                           {"kv_channels", 4},
                                                           {"num_attention_heads", 8},
                                                           {"multi_query_attention", true},
                                                           {"multi_query_group_num", 2},
                                                           {"seq_length", 128},
                                                           {"layernorm_epsilon", 1e-5},
                                                           {"rmsnorm", true},
                                                           {"post_layer_norm", true},
                                                           {"add_bias_linear", false},
                                                           {"add_qkv_bias", true},
                                                           {"original_rope", true},
                                                           {"eos_token_id", 2}};
}

TEST(ChatGlmCppGolden, HiddenStatesOfPromptAndTwoSteps) {
  for (const char* name : {"glm2_model", "glm3_model"}) {
    const std::string path =
        baton::testing::SharedData("models/chatglm-cpp-golden/" + std::string(name) + ".data");
    BATON_NEED_DATA(path);
    DataFile data(path);
    const std::string folder = ::testing::TempDir() + "/chatglm_cpp_golden";
    WriteCheckpoint(data, folder);
    ModelRunner runner(folder, Options("auto", Precision::kExact, 1));
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(runner.ok());
    TestSequence sequence = runner.NewSequence(5);
    for (size_t count : {3, 1, 1}) {
      std::vector<TokenId> ids(count);
      std::memcpy(ids.data(), data.Take(count).data(), count * sizeof(TokenId));
      std::vector<float> expected(count * kHidden);
      std::memcpy(expected.data(), data.Take(expected.size()).data(),
                  expected.size() * sizeof(float));
      const auto actual = runner.Feed(sequence, ids, 8, LogitRows::kAll);
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5f) << i;
    }
    EXPECT_TRUE(data.at_end());
  }
}

}  // namespace
}  // namespace baton::model
