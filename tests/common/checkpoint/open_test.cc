// SPDX-License-Identifier: Apache-2.0
// OpenCheckpoint: what it finds, and what it says when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string EmbeddedFile(const std::string& name) {
  return absl::StrCat(BATON_SOURCE_DIR, "/common/checkpoint/embedded/", name);
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

// own-glm's config.json with one text replaced.
std::string ConfigWith(const std::string& from, const std::string& to) {
  std::string config = ReadFile(EmbeddedFile("config.json"));
  const size_t at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return config.replace(at, from.size(), to);
}

absl::Status OpenWithConfig(const std::string& config) {
  const TempFolder folder;
  folder.Write("config.json", config);
  folder.Link("model.safetensors", EmbeddedFile("model.safetensors"));
  const auto opened = OpenCheckpoint(folder.path());
  return opened.ok() ? (*opened)->Weights().status() : opened.status();
}

TEST(OpenCheckpoint, OpensTheEmbeddedModel) {
  const auto opened = OpenCheckpoint("embedded");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const ModelConfig& config = (*opened)->config();
  EXPECT_EQ(config.name, "own-glm");
  EXPECT_EQ(config.architecture, "chatglm");
  EXPECT_EQ(config.layers, 3u);
  EXPECT_EQ(config.kv_heads, 2u);
  EXPECT_EQ(config.rotary_dims, 8u);
  EXPECT_EQ(config.rope_style, RopeStyle::kAdjacentPairs);
  EXPECT_EQ(config.end_tokens, (std::vector<TokenId>{2}));
  EXPECT_EQ((*opened)->format(), "safetensors");
  EXPECT_EQ((*opened)->file_bytes(), 853'112u);
  EXPECT_EQ((*opened)->DetectChatFormat()->name, "chatglm2");
}

TEST(OpenCheckpoint, OpensTheSameModelFromAFolderAndByItsFile) {
  const auto embedded = OpenCheckpoint("embedded");
  const auto folder = OpenCheckpoint(EmbeddedFile(""));
  const auto file = OpenCheckpoint(EmbeddedFile("model.safetensors"));
  ASSERT_TRUE(embedded.ok() && folder.ok() && file.ok());
  EXPECT_EQ((*folder)->Fingerprint(), (*embedded)->Fingerprint());
  EXPECT_EQ((*file)->Fingerprint(), (*embedded)->Fingerprint());
  EXPECT_EQ((*embedded)->Fingerprint().size(), 64u);
}

TEST(OpenCheckpoint, FingerprintTellsWeightsAndConfigurationsApart) {
  const std::string fingerprint = (*OpenCheckpoint("embedded"))->Fingerprint();
  const TempFolder folder;
  std::string weights = ReadFile(EmbeddedFile("model.safetensors"));
  folder.Write("config.json", ReadFile(EmbeddedFile("config.json")));
  weights.back() = static_cast<char>(weights.back() + 1);
  folder.Write("model.safetensors", weights);
  EXPECT_NE((*OpenCheckpoint(folder.path()))->Fingerprint(), fingerprint);
  folder.Write("model.safetensors", ReadFile(EmbeddedFile("model.safetensors")));
  EXPECT_EQ((*OpenCheckpoint(folder.path()))->Fingerprint(), fingerprint);
  folder.Write("config.json", ConfigWith("\"seq_length\": 512", "\"seq_length\": 511"));
  EXPECT_NE((*OpenCheckpoint(folder.path()))->Fingerprint(), fingerprint);
}

TEST(OpenCheckpoint, SaysWhatIsNotThere) {
  using enum absl::StatusCode;
  const TempFolder folder;
  ExpectError(OpenCheckpoint(folder.path() + "/nothing").status(), kNotFound, "/nothing");
  ExpectError(OpenCheckpoint(folder.path()).status(), kNotFound, "model.safetensors");
  ExpectError(OpenCheckpoint(folder.Write("x.txt", "x")).status(), kInvalidArgument,
              "not a checkpoint");
  ExpectError(OpenCheckpoint(folder.Write("model.safetensors", "x")).status(), kNotFound,
              "config.json");
  ExpectError(OpenCheckpoint("/dev/null").status(), kInvalidArgument, "not a checkpoint");
}

TEST(OpenCheckpoint, FolderWithOneGgufOpensItAndSeveralAskForAName) {
  GgufBuilder builder = TinyLlamaKeys();
  AddTinyLlamaTensors(builder);
  const TempFolder folder;
  folder.Write("one.gguf", builder.Build());
  const auto opened = OpenCheckpoint(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->config().name, "one");
  folder.Write("two.gguf", builder.Build());
  ExpectError(OpenCheckpoint(folder.path()).status(), absl::StatusCode::kInvalidArgument,
              "name one of them");
}

TEST(OpenCheckpoint, UnknownArchitectureListsThoseThatAreSupported) {
  using enum absl::StatusCode;
  ExpectError(OpenWithConfig(ConfigWith("\"model_type\": \"chatglm\"", "\"model_type\": \"bert\"")),
              kUnimplemented, "supported are chatglm, llama, qwen2");
  const TempFolder folder;
  const std::string path =
      folder.Write("x.gguf", GgufBuilder().String("general.architecture", "mamba").Build());
  ExpectError(OpenCheckpoint(path).status(), kUnimplemented, "chatglm, llama");
}

TEST(OpenCheckpoint, ConfigurationIsCheckedByField) {
  using enum absl::StatusCode;
  const struct {
    const char *from, *to;
    absl::StatusCode code;
    const char* text;
  } kCases[] = {
      {"\"num_layers\": 3", "\"num_layers\": 0", kInvalidArgument, "num_layers"},
      {"\"num_layers\": 3", "\"num_layers\": 4000000000", kInvalidArgument, "num_layers"},
      {"\"num_layers\": 3", "\"num_layers\": 4", kInvalidArgument, "layers.3"},
      {"\"num_layers\": 3", "\"num_layers\": 2", kInvalidArgument, "layers.2"},
      {"\"hidden_size\": 96", "\"hidden_size\": 95", kInvalidArgument, "[672, 96], not [672, 95]"},
      {"\"hidden_size\": 96,", "", kInvalidArgument, "\"hidden_size\" is missing"},
      {"\"multi_query_group_num\": 2", "\"multi_query_group_num\": 4", kInvalidArgument,
       "cannot share"},
      {"\"kv_channels\": 16", "\"kv_channels\": 6", kInvalidArgument, "rotary"},
      {"\"layernorm_epsilon\": 1e-05", "\"layernorm_epsilon\": 0", kInvalidArgument, "epsilon"},
      {"\"eos_token_id\": 2", "\"eos_token_id\": 672", kInvalidArgument, "eos_token_id"},
      {"\"eos_token_id\": 2", "\"rope_ratio\": -1, \"eos_token_id\": 2", kInvalidArgument, "RoPE"},
      {"\"add_bias_linear\": false", "\"add_bias_linear\": true", kUnimplemented,
       "add_bias_linear"},
      {"\"rmsnorm\": true", "\"rmsnorm\": false", kUnimplemented, "rmsnorm"},
      {"\"use_cache\": true", "\"pre_seq_len\": 128", kUnimplemented, "pre_seq_len"},
      {"\"use_cache\": true", "\"quantization_bit\": 2", kUnimplemented, "quantization_bit = 2"},
      {"\"use_cache\": true", "\"rope_ratio\": 50, \"_name_or_path\": \"THUDM/chatglm2-6b-32k\"",
       kUnimplemented, "interpolated"},
  };
  for (const auto& one : kCases) {
    ExpectError(OpenWithConfig(ConfigWith(one.from, one.to)), one.code, one.text);
  }
  EXPECT_TRUE(OpenWithConfig(ConfigWith("\"use_cache\": true", "\"a_new_field\": [1]")).ok());
}

TEST(OpenCheckpoint, ChatGlm3StretchesTheBaseOfRope) {
  const TempFolder folder;
  folder.Write("config.json", ConfigWith("\"use_cache\": true", "\"rope_ratio\": 50"));
  folder.Link("model.safetensors", EmbeddedFile("model.safetensors"));
  const auto opened = OpenCheckpoint(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->config().rope_base, 500'000.0);
}

TEST(OpenCheckpoint, TruncatedWeightsAreRefused) {
  const TempFolder folder;
  const std::string weights = ReadFile(EmbeddedFile("model.safetensors"));
  folder.Write("config.json", ReadFile(EmbeddedFile("config.json")));
  folder.Write("model.safetensors", weights.substr(0, weights.size() / 2));
  ExpectError(OpenCheckpoint(folder.path()).status(), absl::StatusCode::kInvalidArgument,
              "model.safetensors");
}

TEST(OpenCheckpoint, VocabularyFileOfAnotherSizeIsRefused) {
  const TempFolder folder;
  folder.Write("config.json",
               ConfigWith("\"padded_vocab_size\": 672", "\"padded_vocab_size\": 641"));
  folder.Link("model.safetensors", EmbeddedFile("model.safetensors"));
  folder.Link("tokenizer.model", EmbeddedFile("tokenizer.model"));
  const auto opened = OpenCheckpoint(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  ExpectError((*opened)->LoadTokenizer().status(), absl::StatusCode::kInvalidArgument,
              "645 tokens for a model of 641");
}

TEST(OpenCheckpoint, WithoutATokenizerServesIds) {
  const TempFolder folder;
  folder.Link("config.json", EmbeddedFile("config.json"));
  folder.Link("model.safetensors", EmbeddedFile("model.safetensors"));
  const auto opened = OpenCheckpoint(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto tokenizer = (*opened)->LoadTokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*tokenizer, nullptr);
  EXPECT_EQ((*opened)->DetectChatFormat()->name, "raw");
}

}  // namespace
}  // namespace baton::checkpoint
