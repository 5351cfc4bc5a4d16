// SPDX-License-Identifier: Apache-2.0
// Whole prompts of real checkpoints against recorded ids.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/chat/prompt_format.h"
#include "common/checkpoint/checkpoint.h"
#include "common/tokenizer/sentencepiece.h"
#include "tests/testing/test_data.h"

namespace baton::chat {
namespace {

using Json = nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Opened {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<PromptFormat> format;
};

Opened Open(const std::string& path) {
  const auto checkpoint = checkpoint::OpenCheckpoint(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  auto tokenizer = (*checkpoint)->LoadTokenizer();
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto detected = (*checkpoint)->DetectChatFormat();
  EXPECT_TRUE(detected.ok()) << detected.status();
  return {*std::move(tokenizer), *MakePromptFormat(detected->name, detected->options)};
}

std::vector<Message> Messages(const Json& list) {
  std::vector<Message> messages;
  for (const Json& one : list) {
    messages.push_back(
        {*ParseChatRole(one["role"].get<std::string>()), one["content"].get<std::string>()});
  }
  return messages;
}

// The dialog that a ChatGLM2 prompt was made from.
std::vector<Message> Rounds(std::string_view prompt) {
  constexpr std::string_view kQuestion = "问：", kAnswer = "\n\n答：", kNext = "\n\n[Round ";
  std::vector<Message> messages;
  while (!prompt.empty()) {
    prompt.remove_prefix(prompt.find(kQuestion) + kQuestion.size());
    const size_t end = prompt.find(kAnswer);
    messages.push_back({ChatRole::kUser, std::string(prompt.substr(0, end))});
    prompt.remove_prefix(end + kAnswer.size());
    if (prompt.empty()) break;
    const size_t next = prompt.find(kNext);
    messages.push_back({ChatRole::kAssistant, std::string(prompt.substr(0, next))});
    prompt.remove_prefix(next);
  }
  return messages;
}

TEST(PromptGolden, EmbeddedModel) {
  const Opened opened = Open("embedded");
  const Json golden = Json::parse(ReadFile(testing::TestData("own-glm/golden.json")));
  int cases = 0;
  for (const Json& one : golden["cases"]) {
    const auto ids =
        opened.format->Render(Rounds(one["prompt"].get<std::string>()), *opened.tokenizer);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, one["prompt_ids"].get<std::vector<TokenId>>()) << one["prompt"];
    EXPECT_EQ(Decode(*opened.tokenizer, one["greedy_ids"].get<std::vector<TokenId>>()),
              one["text"].get<std::string>());
    ++cases;
  }
  EXPECT_EQ(cases, 12);
}

// Prompts and answers of a golden file in the format that the model brings.
void CheckConversations(const std::string& model, const std::string& path, int expected_cases) {
  BATON_NEED_DATA(model);
  BATON_NEED_DATA(path);
  const Opened opened = Open(model);
  int cases = 0;
  for (const Json& one : Json::parse(ReadFile(path))) {
    const auto ids = opened.format->Render(Messages(one["messages"]), *opened.tokenizer);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, one["prompt_ids"].get<std::vector<TokenId>>()) << one["name"];
    EXPECT_EQ(Decode(*opened.tokenizer, one["greedy_ids"].get<std::vector<TokenId>>()),
              one["text"].get<std::string>())
        << one["name"];
    ++cases;
  }
  EXPECT_EQ(cases, expected_cases);
}

TEST(PromptGolden, SmolLm2) {
  CheckConversations(testing::DemoModel(), testing::SharedData("models/smollm2/golden.json"), 15);
}

// With its default system message, and control tokens that a user spelled.
TEST(PromptGolden, Qwen25Coder) {
  const std::string model = testing::QwenModel();
  BATON_NEED_MODEL(model);
  CheckConversations(model, testing::SharedData("models/qwen25coder/golden.json"), 9);
}

TEST(PromptGolden, ChatGlm3AndChatGlm2AsPublished) {
  const std::string path = testing::SharedData("models/chatglm2/tokenizer_golden.json");
  BATON_NEED_DATA(path);
  const std::string model = ReadFile(testing::SharedData("models/chatglm2/tokenizer.model"));
  tokenizer::SentencePieceOptions options;
  options.added_tokens = tokenizer::ChatGlmControlTokens(64'789, /*roles=*/true);
  options.prefix = {"[gMASK]", "sop"};
  const auto tokenizer = LoadSentencePiece(std::as_bytes(std::span(model)), options);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json golden = Json::parse(ReadFile(path));
  const auto third = *MakePromptFormat("chatglm3", {});
  for (const Json& one : golden["chatglm3_turns"]) {
    std::vector<Message> messages;
    for (const Json& turn : one["turns"]) {
      messages.push_back({*ParseChatRole(turn[0].get<std::string>()), turn[1].get<std::string>()});
    }
    EXPECT_EQ(*third->Render(messages, **tokenizer), one["ids"].get<std::vector<TokenId>>());
  }
  const auto second = *MakePromptFormat("chatglm2", {});
  int rounds = 0;
  for (const Json& one : golden["encode_with_prefix"]) {
    const std::string text = one["text"].get<std::string>();
    if (!text.starts_with("[Round 1]")) continue;
    EXPECT_EQ(*second->Render(Rounds(text), **tokenizer), one["ids"].get<std::vector<TokenId>>());
    ++rounds;
  }
  EXPECT_EQ(rounds, 3);
}

}  // namespace
}  // namespace baton::chat
