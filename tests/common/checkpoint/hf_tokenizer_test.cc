// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig LlamaConfig(uint32_t vocabulary) {
  ModelConfig config;
  config.architecture = "llama";
  config.vocabulary = vocabulary;
  return config;
}

// A tokenizer.json with these parts.
std::string TokenizerJson(const std::string& pre_tokenizer, const std::string& model_fields,
                          const std::string& more = "") {
  return R"({"added_tokens":[{"id":4,"content":"<|end|>","special":true},)"
         R"({"id":5,"content":"<tool>","special":false}],"pre_tokenizer":)" +
         pre_tokenizer + more + R"(,"model":{"type":"BPE",)" + model_fields + "}}";
}

constexpr char kByteLevel[] = R"({"type":"ByteLevel","add_prefix_space":false})";
constexpr char kModel[] = R"("vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"])";

absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> Load(const std::string& json,
                                                           const std::string& config = "{}",
                                                           uint32_t vocabulary = 10) {
  const TempFolder folder;
  folder.Write("tokenizer.json", json);
  folder.Write("tokenizer_config.json", config);
  return LoadHfTokenizer(*OpenDiskFolder(folder.path()), LlamaConfig(vocabulary));
}

TEST(HfTokenizer, ReadsByteLevelBpe) {
  const auto tokenizer = Load(TokenizerJson(kByteLevel, kModel));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->kind(), "bpe");
  EXPECT_THAT((*tokenizer)->Encode("ab b"), ElementsAre(2, 3, 1));
  EXPECT_EQ((*tokenizer)->TokenByName("<|end|>"), 4u);
  EXPECT_THAT((*tokenizer)->Encode("a<tool>b"), ElementsAre(0, 5, 1));
  EXPECT_EQ((*tokenizer)->TokenBytes(5), "<tool>");
  EXPECT_TRUE((*tokenizer)->prefix().empty());
}

TEST(HfTokenizer, ReadsMergesThatArePairs) {
  const auto tokenizer =
      Load(TokenizerJson(kByteLevel, R"("vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":[["a","b"]])"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("ab"), ElementsAre(2));
}

TEST(HfTokenizer, PutsTheTemplatesTokenInFront) {
  const auto tokenizer = Load(TokenizerJson(
      kByteLevel, kModel,
      R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>"}}]})"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->prefix(), ElementsAre(4));
}

TEST(HfTokenizer, TellsPreTokenizersApart) {
  const std::string smollm =
      R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})";
  const std::string qwen2 =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
      R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+)"
      R"([\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  EXPECT_TRUE(Load(TokenizerJson(smollm, kModel)).ok());
  EXPECT_TRUE(Load(TokenizerJson(qwen2, kModel)).ok());
  for (const char* other : {"null", R"({"type":"Whitespace"})", R"({"type":"Metaspace"})",
                            R"({"type":"ByteLevel","add_prefix_space":true})"}) {
    EXPECT_EQ(Load(TokenizerJson(other, kModel)).status().code(), absl::StatusCode::kUnimplemented)
        << other;
  }
}

TEST(HfTokenizer, RefusesBadFiles) {
  using enum absl::StatusCode;
  const auto refused = [](const std::string& json, absl::StatusCode code) {
    const auto tokenizer = Load(json);
    EXPECT_EQ(tokenizer.status().code(), code) << json << tokenizer.status();
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer of"));
  };
  refused("{", kInvalidArgument);
  refused(R"({"model":{"type":"Unigram"}})", kUnimplemented);
  refused(TokenizerJson(kByteLevel, R"("vocab":{"a":0,"b":0},"merges":[])"), kInvalidArgument);
  refused(TokenizerJson(kByteLevel, R"("vocab":{"a":4194304},"merges":[])"), kInvalidArgument);
  refused(TokenizerJson(kByteLevel, R"("vocab":{"a":-1},"merges":[])"), kInvalidArgument);
  refused(TokenizerJson(kByteLevel, R"("vocab":{"a":0},"merges":["aa"])"), kInvalidArgument);
  refused(TokenizerJson(kByteLevel, R"("vocab":{"a":0},"merges":["a b"])"), kInvalidArgument);
  refused(TokenizerJson(kByteLevel, kModel, R"(,"normalizer":{"type":"Lowercase"})"),
          kUnimplemented);
}

TEST(HfTokenizer, NfcComposesTextAroundAddedTokens) {
  const std::string model = R"("vocab":{"a":0,"Ã":1,"¥":2,"Ã¥":3},"merges":["Ã ¥"])";
  for (const char* normalizer :
       {R"({"type":"NFC"})", R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})"}) {
    const auto tokenizer =
        Load(TokenizerJson(kByteLevel, model, R"(,"normalizer":)" + std::string(normalizer)));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    // "a" and a ring above, on both sides of a token, and the composed "å".
    EXPECT_THAT((*tokenizer)->Encode("a\u030a<tool>a\u030aa\u00e5"), ElementsAre(3, 5, 3, 0, 3));
  }
  const auto two = Load(TokenizerJson(
      kByteLevel, kModel,
      R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})"));
  EXPECT_THAT(std::string(two.status().message()), HasSubstr("normalizer Lowercase"));
}

TEST(HfTokenizer, RefusesMoreTokensThanTheModelHas) {
  EXPECT_EQ(Load(TokenizerJson(kByteLevel, kModel), "{}", 5).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HfTokenizer, ChatTemplateComesFromTheConfigurationOrItsOwnFile) {
  const TempFolder folder;
  folder.Write("tokenizer.json", "{}");
  folder.Write("tokenizer_config.json", R"({"chat_template":[{"name":"tools","template":"?"},)"
                                        R"({"name":"default","template":"[INST] <<SYS>>"}]})");
  const auto opened = OpenDiskFolder(folder.path());
  EXPECT_EQ(DetectHfChatFormat(*opened, LlamaConfig(10))->name, "llama2");
  folder.Write("chat_template.jinja", "<|im_start|><|im_end|>");
  EXPECT_EQ(DetectHfChatFormat(*opened, LlamaConfig(10))->name, "chatml");
}

TEST(HfTokenizer, ChatGlmVersionsAreToldByFieldsNotByTheFolder) {
  ModelConfig config = LlamaConfig(672);
  config.architecture = "chatglm";
  config.end_tokens = {2};
  const TempFolder folder;
  folder.Link("tokenizer.model",
              std::string(BATON_SOURCE_DIR) + "/common/checkpoint/embedded/tokenizer.model");
  const auto opened = OpenDiskFolder(folder.path());
  EXPECT_EQ(DetectHfChatFormat(*opened, config)->name, "chatglm2");
  EXPECT_EQ((*LoadHfTokenizer(*opened, config))->size(), 645u);

  folder.Write("config.json", R"({"_name_or_path":"THUDM/chatglm3-6b"})");
  EXPECT_EQ(DetectHfChatFormat(*opened, config)->name, "chatglm3");
  const auto third = LoadHfTokenizer(*opened, config);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ((*third)->TokenByName("<|user|>"), 646u);
  EXPECT_THAT((*third)->end_tokens(), ElementsAre(2, 646, 648));

  folder.Write("config.json", "{}");
  folder.Write("tokenizer_config.json",
               R"({"added_tokens_decoder":{"646":{"content":"<|user|>","special":true}}})");
  EXPECT_EQ(DetectHfChatFormat(*opened, config)->name, "chatglm3");
}

}  // namespace
}  // namespace baton::checkpoint
