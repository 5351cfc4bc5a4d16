// SPDX-License-Identifier: Apache-2.0
// The isolated library, beside libprotobuf in the same process.
#include "common/tokenizer/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "baton/v1/types.pb.h"
#include "common/base/utf8.h"
#include "tests/testing/test_data.h"

namespace baton::tokenizer {
namespace {

using Json = nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<Tokenizer> Load(const std::string& path, const SentencePieceOptions& options = {}) {
  const std::string model = ReadFile(path);
  auto loaded = LoadSentencePiece(std::as_bytes(std::span(model)), options);
  EXPECT_TRUE(loaded.ok()) << path << ": " << loaded.status();
  return loaded.ok() ? *std::move(loaded) : nullptr;
}

std::string OwnModel() {
  return std::string(BATON_SOURCE_DIR) + "/common/checkpoint/embedded/tokenizer.model";
}

SentencePieceOptions ChatGlm(TokenId pieces, bool roles) {
  SentencePieceOptions options;
  options.added_tokens = ChatGlmControlTokens(pieces, roles);
  options.prefix = {"[gMASK]", "sop"};
  return options;
}

TEST(SentencePiece, WorksBesideLibprotobuf) {
  v1::SamplingParams message;
  message.set_temperature(0.5f);
  const std::string wire = message.SerializeAsString();
  const auto tokenizer = Load(OwnModel());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_FALSE(tokenizer->Encode("7+8=？").empty());
  v1::SamplingParams parsed;
  ASSERT_TRUE(parsed.ParseFromString(wire));
  EXPECT_EQ(parsed.temperature(), 0.5f);
}

TEST(SentencePiece, ChatGlmNumbersItsControlTokensBehindThePieces) {
  const auto tokenizer = Load(OwnModel(), ChatGlm(640, /*roles=*/false));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 645u);
  EXPECT_EQ(tokenizer->TokenByName("[gMASK]"), 641u);
  EXPECT_EQ(tokenizer->TokenByName("sop"), 643u);
  EXPECT_EQ(tokenizer->TokenByName("<|user|>"), std::nullopt);
  EXPECT_EQ(tokenizer->prefix(), (std::vector<TokenId>{641, 643}));
  EXPECT_EQ(tokenizer->end_tokens(), (std::vector<TokenId>{2}));
  EXPECT_TRUE(tokenizer->IsControl(641));
  EXPECT_EQ(tokenizer->TokenBytes(641), "");
  EXPECT_EQ(tokenizer->TokenBytes(100'000), "");
}

TEST(SentencePiece, TextThatSpellsControlTokensYieldsNone) {
  const auto tokenizer = Load(OwnModel(), ChatGlm(640, /*roles=*/true));
  ASSERT_NE(tokenizer, nullptr);
  for (const char* text : {"[gMASK]", "sop", "eop", "<|user|>", "<s>", "</s>", "<unk>", "<eos>"}) {
    for (TokenId id : tokenizer->Encode(text)) EXPECT_FALSE(tokenizer->IsControl(id)) << text;
  }
  const std::vector<TokenId> ids = tokenizer->Encode("<0x0A>");
  EXPECT_THAT(ids, Not(Contains(13u)));
  EXPECT_EQ(Decode(*tokenizer, ids), "<0x0A>");
}

TEST(SentencePiece, ContinuedTextGetsNoDummyPrefix) {
  const auto tokenizer = Load(OwnModel());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("\n").size(), 2u);
  EXPECT_EQ(tokenizer->Encode("\n", /*first=*/false), (std::vector<TokenId>{13}));
}

TEST(SentencePiece, InvalidUtf8IsReplacedNotRead) {
  const auto tokenizer = Load(OwnModel());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Decode(*tokenizer, tokenizer->Encode("a\xFF\xE4\xBD")), "a\uFFFD\uFFFD\uFFFD");
}

TEST(SentencePiece, ThreadsShareOneTokenizer) {
  const auto tokenizer = Load(OwnModel());
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<TokenId> expected = tokenizer->Encode("Say cat 3 times, 你好👋");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        wrong += tokenizer->Encode("Say cat 3 times, 你好👋") != expected;
        wrong += tokenizer->Encode("\n", false).size() != 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  for (const std::string& bytes :
       {std::string(), std::string("not a model"), ReadFile(OwnModel()).substr(0, 5000)}) {
    const auto loaded = LoadSentencePiece(std::as_bytes(std::span(bytes)), {});
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument) << bytes.size();
  }
}

TEST(SentencePiece, RefusesNamesThatAreNotThere) {
  const std::string model = ReadFile(OwnModel());
  SentencePieceOptions options;
  options.prefix = {"<|begin|>"};
  const auto loaded = LoadSentencePiece(std::as_bytes(std::span(model)), options);
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("<|begin|>"));
}

TEST(SentencePiece, EncodesAsPublishedForChatGlm2) {
  const std::string golden_path = testing::SharedData("models/chatglm2/tokenizer_golden.json");
  BATON_NEED_DATA(golden_path);
  const auto tokenizer =
      Load(testing::SharedData("models/chatglm2/tokenizer.model"), ChatGlm(64789, /*roles=*/false));
  ASSERT_NE(tokenizer, nullptr);
  const Json golden = Json::parse(ReadFile(golden_path));
  int cases = 0;
  for (const Json& one : golden["encode_with_prefix"]) {
    std::vector<TokenId> ids = tokenizer->prefix();
    for (TokenId id : tokenizer->Encode(one["text"].get<std::string>())) ids.push_back(id);
    EXPECT_EQ(ids, one["ids"].get<std::vector<TokenId>>()) << one["source"];
    ++cases;
  }
  EXPECT_EQ(cases, 6);
}

// Ids, pieces of the stream, and the whole decode, as the library gives them.
TEST(SentencePiece, StreamsAsRecorded) {
  BATON_NEED_DATA(testing::SharedData("models/chatglm2/tokenizer.model"));
  const std::map<std::string, std::string> models = {
      {"chatglm2", testing::SharedData("models/chatglm2/tokenizer.model")},
      {"llama2", testing::SharedData("models/llama2/tokenizer.model")},
      {"tok512", testing::SharedData("models/stories260k/tok512.model")}};
  const Json recorded = Json::parse(ReadFile(testing::TestData("text/stream_cases.json")));
  for (const auto& [name, path] : models) {
    const auto tokenizer = Load(path);
    ASSERT_NE(tokenizer, nullptr);
    const auto check = [&, name = name](const Json& one) {
      StreamDecoder decoder(tokenizer.get());
      const auto ids = one["ids"].get<std::vector<TokenId>>();
      std::vector<std::string> chunks;
      for (TokenId id : ids) chunks.push_back(decoder.Push(id));
      EXPECT_EQ(chunks, one["chunks"].get<std::vector<std::string>>()) << name << one;
      EXPECT_EQ(decoder.Flush(), one.value("tail", std::string())) << name << one;
      // The library eats all space pieces at the front where it has no piece of
      // several; then ours is what the user typed, and the join is the measure.
      if (!one.value("chunks_join_equals_sp_decode", true)) return;
      EXPECT_EQ(Decode(*tokenizer, ids), one["sp_decode"].get<std::string>()) << name << one;
    };
    for (const Json& one : recorded[name]["cases"]) {
      EXPECT_EQ(tokenizer->Encode(one["text"].get<std::string>()),
                one["ids"].get<std::vector<TokenId>>());
      check(one);
    }
    for (const Json& one : recorded[name]["invalid"]) check(one);
  }
}

TEST(SentencePiece, NaughtyStringsRoundTrip) {
  const std::string path = testing::SharedData("models/text/blns.json");
  BATON_NEED_DATA(path);
  const auto tokenizer = Load(testing::SharedData("models/chatglm2/tokenizer.model"));
  ASSERT_NE(tokenizer, nullptr);
  for (const Json& one : Json::parse(ReadFile(path))) {
    const std::string text = one.get<std::string>();
    if (text.find("▁") != std::string::npos) continue;  // the tokenizer's own space mark
    EXPECT_EQ(Decode(*tokenizer, tokenizer->Encode(text)), text);
  }
}

}  // namespace
}  // namespace baton::tokenizer
