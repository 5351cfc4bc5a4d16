// SPDX-License-Identifier: Apache-2.0
// Tokenizers of real checkpoints against ids that others published.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <sstream>

#include "common/base/utf8.h"
#include "common/checkpoint/gguf_tokenizer.h"
#include "common/checkpoint/hf_tokenizer.h"
#include "common/checkpoint/json.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/testing/test_data.h"

namespace baton::checkpoint {
namespace {

using testing::SharedData;
using tokenizer::Decode;
using tokenizer::Tokenizer;

ModelConfig Llama(uint32_t vocabulary) {
  ModelConfig config;
  config.architecture = "llama";
  config.vocabulary = vocabulary;
  return config;
}

std::unique_ptr<Tokenizer> FromGguf(const std::string& path) {
  const auto file = MapFile(path);
  const auto gguf = ReadGguf(*file);
  EXPECT_TRUE(gguf.ok()) << gguf.status();
  auto loaded = LoadGgufTokenizer(gguf->metadata, Llama(1 << 20));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

std::unique_ptr<Tokenizer> FromFolder(const Folder& folder, uint32_t vocabulary) {
  auto loaded = LoadHfTokenizer(folder, Llama(vocabulary));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

void AppendUtf8(char32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr int kLead[] = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kLead[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
}

// llama.cpp's vectors: texts between separators, ids line by line.
void ExpectVectors(const Tokenizer& tokenizer, const std::string& name) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string texts =
      ReadFile(SharedData("models/ggml-vocab/ggml-vocab-" + name + ".gguf.inp"));
  std::istringstream lines(
      ReadFile(SharedData("models/ggml-vocab/ggml-vocab-" + name + ".gguf.out")));
  int cases = 0;
  std::string line;
  for (size_t begin = 0; std::getline(lines, line); ++cases) {
    const size_t end = std::min(texts.find(kSeparator, begin), texts.size());
    const std::string text = texts.substr(begin, end - begin);
    begin = std::min(end + kSeparator.size(), texts.size());
    std::istringstream numbers(line);
    std::vector<TokenId> expected;
    for (TokenId id; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(tokenizer.Encode(text), expected) << name << ": \"" << text << "\"";
    EXPECT_EQ(Decode(tokenizer, expected), text) << name;
  }
  EXPECT_EQ(cases, 46) << name;
}

// What users may type stays text and comes back as it was.
void ExpectTextStaysText(const Tokenizer& tokenizer) {
  for (const char* text : {"<|im_end|>", "<|im_start|>system\nx", "<s>", "</s>", "[gMASK]sop",
                           "<0x0A>", "<unk>", "<|endoftext|>", "<|eot_id|>", "<|user|>"}) {
    const std::vector<TokenId> ids = tokenizer.Encode(text);
    for (TokenId id : ids) EXPECT_FALSE(tokenizer.IsControl(id)) << text;
    EXPECT_EQ(Decode(tokenizer, ids), text);
  }
}

void ExpectRoundTrips(const Tokenizer& tokenizer) {
  const auto json = Json::parse(ReadFile(SharedData("models/text/blns.json")));
  std::vector<std::string> texts(json.begin(), json.end());
  texts.push_back(ReplaceInvalidUtf8(ReadFile(SharedData("models/text/UTF-8-test.txt"))));
  const bool spells_spaces = tokenizer.kind() == "spm" || tokenizer.kind() == "sentencepiece";
  for (const std::string& text : texts) {
    if (spells_spaces && text.find("▁") != std::string::npos) continue;
    EXPECT_EQ(Decode(tokenizer, tokenizer.Encode(text)), text);
  }
}

TEST(TokenizerGolden, Gpt2FromGguf) {
  const std::string path = SharedData("models/ggml-vocab/ggml-vocab-gpt-2.gguf");
  BATON_NEED_DATA(path);
  const auto tokenizer = FromGguf(path);
  ExpectVectors(*tokenizer, "gpt-2");
  ExpectTextStaysText(*tokenizer);
  ExpectRoundTrips(*tokenizer);
}

TEST(TokenizerGolden, LlamaSpmFromGguf) {
  const std::string path = SharedData("models/ggml-vocab/ggml-vocab-llama-spm.gguf");
  BATON_NEED_DATA(path);
  const auto tokenizer = FromGguf(path);
  ExpectVectors(*tokenizer, "llama-spm");
  ExpectTextStaysText(*tokenizer);
  ExpectRoundTrips(*tokenizer);
  EXPECT_EQ(tokenizer->prefix(), (std::vector<TokenId>{1}));
}

TEST(TokenizerGolden, LlamaFromSentencePieceModel) {
  const std::string path = SharedData("models/llama2");
  BATON_NEED_DATA(path);
  const auto tokenizer = FromFolder(*OpenDiskFolder(path), 32'000);
  EXPECT_EQ(tokenizer->kind(), "sentencepiece");
  ExpectVectors(*tokenizer, "llama-spm");
  ExpectTextStaysText(*tokenizer);
}

// Strings of characters from all over Unicode, spaces and byte-token look-alikes.
std::string RandomText(std::mt19937& random) {
  constexpr char32_t kRanges[][2] = {
      {0x20, 0x7E},   {0x20, 0x20},     {0x09, 0x0D},     {0xA0, 0x24F},      {0x300, 0x36F},
      {0x400, 0x4FF}, {0x4E00, 0x4FFF}, {0xAC00, 0xAD00}, {0x1F600, 0x1F64F}, {0x10FF00, 0x10FFFF}};
  std::string text;
  for (size_t count = 1 + random() % 40; count > 0; --count) {
    const auto& [low, high] = kRanges[random() % std::size(kRanges)];
    const char32_t code = low + random() % (high - low + 1);
    for (int repeats = random() % 8 == 0 ? 3 : 1; repeats > 0; --repeats) AppendUtf8(code, text);
  }
  return text;
}

TEST(TokenizerGolden, OwnSpmAgreesWithTheLibraryOnRandomText) {
  const std::string gguf = SharedData("models/ggml-vocab/ggml-vocab-llama-spm.gguf");
  BATON_NEED_DATA(gguf);
  const auto own = FromGguf(gguf);
  const auto library = FromFolder(*OpenDiskFolder(SharedData("models/llama2")), 32'000);
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = RandomText(random);
    for (bool first : {true, false}) {
      const std::vector<TokenId> ids = library->Encode(text, first);
      ASSERT_EQ(own->Encode(text, first), ids) << text;
      ASSERT_EQ(Decode(*own, ids), Decode(*library, ids)) << text;
    }
  }
}

TEST(TokenizerGolden, RandomTextComesBackFromByteLevelBpe) {
  const std::string path = SharedData("models/ggml-vocab/ggml-vocab-gpt-2.gguf");
  BATON_NEED_DATA(path);
  const auto tokenizer = FromGguf(path);
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = RandomText(random);
    ASSERT_EQ(Decode(*tokenizer, tokenizer->Encode(text)), text);
  }
}

TEST(TokenizerGolden, LlamaFromTokenizerJson) {
  const std::string path = SharedData("models/llama2/tokenizer.json");
  BATON_NEED_DATA(path);
  const TempFolder folder;
  folder.Link("tokenizer.json", path);
  const auto tokenizer = FromFolder(*OpenDiskFolder(folder.path()), 32'000);
  EXPECT_EQ(tokenizer->kind(), "spm");
  ExpectVectors(*tokenizer, "llama-spm");
  ExpectTextStaysText(*tokenizer);
  EXPECT_EQ(tokenizer->prefix(), (std::vector<TokenId>{1}));
}

TEST(TokenizerGolden, Qwen2FromVocabularyAndMerges) {
  const std::string path = SharedData("models/qwen2");
  BATON_NEED_DATA(path);
  const auto tokenizer = FromFolder(*OpenDiskFolder(path), 151'936);
  ExpectVectors(*tokenizer, "qwen2");
  ExpectTextStaysText(*tokenizer);
  EXPECT_EQ(tokenizer->TokenByName("<|im_end|>"), 151'645u);
}

// Qwen2's tokenizer.json, put together from its vocabulary and its merges.
TEST(TokenizerGolden, Qwen2FromTokenizerJsonWithItsNormalizer) {
  const std::string path = SharedData("models/qwen2");
  BATON_NEED_DATA(path);
  Json json = Json::parse(
      R"({"model":{"type":"BPE"},"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence",)"
      R"("pretokenizers":[{"type":"Split","pattern":{"Regex":)"
      R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+)"
      R"([\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}})");
  json["model"]["vocab"] = Json::parse(ReadFile(path + "/vocab.json"));
  json["model"]["merges"] = Json::array();
  std::istringstream merges(ReadFile(path + "/merges.txt"));
  for (std::string line; std::getline(merges, line);) {
    if (!line.empty() && !line.starts_with("#version")) json["model"]["merges"].push_back(line);
  }
  const TempFolder folder;
  folder.Write("tokenizer.json", json.dump());
  folder.Write("tokenizer_config.json", ReadFile(path + "/tokenizer_config.json"));
  const auto tokenizer = FromFolder(*OpenDiskFolder(folder.path()), 151'936);
  ExpectVectors(*tokenizer, "qwen2");
  EXPECT_EQ(tokenizer->TokenByName("<|im_end|>"), 151'645u);
  // "café" with an accent of its own is the "café" that the vocabulary knows.
  EXPECT_EQ(tokenizer->Encode("cafe\u0301"), tokenizer->Encode("caf\u00e9"));
  EXPECT_NE(tokenizer->Encode("cafe"), tokenizer->Encode("caf\u00e9"));
}

TEST(TokenizerGolden, StoriesFromGgufAndFromSentencePiece) {
  const std::string path = SharedData("models/stories260k/golden.json");
  BATON_NEED_DATA(path);
  const Json golden = Json::parse(ReadFile(path));
  for (const char* checkpoint :
       {"models/stories260k/hf", "models/stories260k/gguf/stories260K.F32.gguf"}) {
    const auto opened = OpenCheckpoint(SharedData(checkpoint));
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->DetectChatFormat()->name, "raw");
    const auto tokenizer = (*opened)->LoadTokenizer();
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const Json& one : golden["cases"]) {
      std::vector<TokenId> ids = (*tokenizer)->prefix();
      for (TokenId id : (*tokenizer)->Encode(one["prompt"].get<std::string>())) ids.push_back(id);
      EXPECT_EQ(ids, one["prompt_ids"].get<std::vector<TokenId>>()) << one["prompt"];
    }
  }
}

TEST(TokenizerGolden, SmolLmEncodesAMegabyteASecond) {
  const std::string path = testing::DemoModel();
  BATON_NEED_DATA(path);
  const auto opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto tokenizer = (*opened)->LoadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectTextStaysText(**tokenizer);
  std::string text;
  while (text.size() < 400'000) {
    text +=
        "Before we proceed any further, hear me speak. You are all resolved rather to die "
        "than to famish? Resolved, 1234 times!\n";
  }
  const auto begin = std::chrono::steady_clock::now();
  const size_t tokens = (*tokenizer)->Encode(text).size();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(tokens, text.size() / 10);
  RecordProperty("megabytes_per_second",
                 std::to_string(static_cast<double>(text.size()) / 1e6 / seconds.count()));
  // A tenth of what is measured on an idle core: this is to catch another
  // order of growth, not a busy machine.
  EXPECT_LT(seconds.count(), 4.0);
}

}  // namespace
}  // namespace baton::checkpoint
