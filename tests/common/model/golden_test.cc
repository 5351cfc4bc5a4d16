// SPDX-License-Identifier: Apache-2.0
// Numbers that others computed: the public ChatGLM2 code, llama2.c, numpy.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/common/model/model_runner.h"
#include "tests/common/model/npy.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

using baton::testing::Npy;
using baton::testing::ReadNpy;
using baton::testing::SharedData;
using baton::testing::TestData;

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

void ExpectNear(std::span<const float> actual, std::span<const float> expected, float tolerance,
                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << what << ", element " << i;
  }
}

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  // One thread: numbers are the subject, and bit_identity_test covers threads.
  LoadOptions exact() const { return Options(GetParam(), Precision::kExact, 1); }
};

// Prompt and greedily decoded steps of golden-chatglm2-tiny.
void CheckTiny(const std::string& folder, const std::string& weights, const std::string& suffix,
               float tolerance, const LoadOptions& options) {
  const std::string root = SharedData("models/golden-chatglm2-tiny/" + folder);
  BATON_NEED_DATA(root);
  ModelRunner runner(root + "/" + weights, options);
  ASSERT_TRUE(runner.ok());
  const auto golden = ReadJson(root + "/golden.json");
  const auto prompt = golden["prompt_ids"].get<std::vector<TokenId>>();
  const auto greedy = golden["greedy_ids"].get<std::vector<TokenId>>();
  TestSequence sequence = runner.NewSequence(static_cast<uint32_t>(prompt.size() + greedy.size()));
  const auto prompt_logits = runner.Feed(sequence, prompt, 1024, LogitRows::kAll);
  ExpectNear(prompt_logits, ReadNpy(root + "/logits_prompt" + suffix + ".npy").values, tolerance,
             folder + " prompt");
  const auto step_logits = runner.Feed(sequence, greedy, 1, LogitRows::kAll);
  ExpectNear(step_logits, ReadNpy(root + "/logits_steps" + suffix + ".npy").values, tolerance,
             folder + " steps");
  if (suffix.empty()) {
    runner.Reset();
    EXPECT_EQ(runner.Greedy(prompt, static_cast<uint32_t>(greedy.size())), greedy);
  }
}

TEST_P(GoldenTest, TinyChatGlmLogits) {
  CheckTiny("a", "model.safetensors", "", 1e-4f, exact());
  CheckTiny("b", "model.safetensors", "", 1e-4f, exact());
}

TEST_P(GoldenTest, TinyChatGlmLogitsOfHalfPrecisionWeights) {
  CheckTiny("a", "model.f16.safetensors", ".f16", 1e-4f, exact());
  CheckTiny("a", "pytorch_model.f16.bin", ".f16", 1e-4f, exact());
  CheckTiny("a", "model.bf16.safetensors", ".bf16", 1e-4f, exact());
  CheckTiny("b", "model.bf16.safetensors", ".bf16", 1e-4f, exact());
}

TEST_P(GoldenTest, TinyChatGlmKeysAfterRotationAndValues) {
  for (const std::string folder : {"a", "b"}) {
    const std::string root = SharedData("models/golden-chatglm2-tiny/" + folder);
    BATON_NEED_DATA(root);
    ModelRunner runner(root + "/model.safetensors", exact());
    ASSERT_TRUE(runner.ok());
    const auto prompt = ReadJson(root + "/golden.json")["prompt_ids"].get<std::vector<TokenId>>();
    TestSequence sequence = runner.NewSequence(static_cast<uint32_t>(prompt.size()));
    runner.Feed(sequence, prompt, 5, LogitRows::kNone);
    for (const bool values : {false, true}) {
      const Npy expected = ReadNpy(root + (values ? "/vcache_prompt.npy" : "/kcache_prompt.npy"));
      ASSERT_EQ(expected.shape.size(), 4u);  // [layer, token, group, head_dim]
      const auto heads = static_cast<uint32_t>(expected.shape[2]);
      for (uint32_t row = 0; row < expected.rows(); ++row) {
        const uint32_t head = row % heads, token = row / heads % prompt.size();
        const auto layer = static_cast<uint32_t>(row / heads / prompt.size());
        ExpectNear(runner.KvRow(sequence, layer, token, head, values,
                                static_cast<uint32_t>(expected.shape[3])),
                   expected.Row(row), 1e-4f, folder + (values ? " V" : " K"));
      }
    }
  }
}

TEST_P(GoldenTest, OwnGlmAnswersEveryCaseInEveryPrecision) {
  const auto golden = ReadJson(TestData("own-glm/golden.json"));
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    ModelRunner runner("embedded", Options(GetParam(), precision, 1));
    ASSERT_TRUE(runner.ok());
    for (const auto& item : golden["cases"]) {
      const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
      EXPECT_EQ(runner.Greedy(item["prompt_ids"].get<std::vector<TokenId>>(),
                              static_cast<uint32_t>(greedy.size())),
                greedy)
          << item["text"];
    }
  }
}

TEST_P(GoldenTest, OwnGlmForcedLogits) {
  const auto item = ReadJson(TestData("own-glm/golden.json"))["cases"][9];
  auto ids = item["prompt_ids"].get<std::vector<TokenId>>();
  const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
  ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
  ModelRunner runner("embedded", exact());
  ASSERT_TRUE(runner.ok());
  TestSequence sequence = runner.NewSequence(static_cast<uint32_t>(ids.size()));
  ExpectNear(runner.Feed(sequence, ids, 1024, LogitRows::kAll),
             ReadNpy(TestData("own-glm/logits_case9_forced.npy")).values, 1e-4f, "case 9");
}

TEST_P(GoldenTest, StoriesGreedyIdsFromBothFormats) {
  const std::string root = SharedData("models/stories260k");
  BATON_NEED_DATA(root);
  const auto golden = ReadJson(root + "/golden.json");
  for (const char* file : {"/hf", "/gguf/stories260K.F32.gguf"}) {
    ModelRunner runner(root + file, exact());
    ASSERT_TRUE(runner.ok());
    for (const auto& item : golden["cases"]) {
      auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
      greedy.resize(std::min(greedy.size(), item["safe_len"].get<size_t>()));
      EXPECT_EQ(runner.Greedy(item["prompt_ids"].get<std::vector<TokenId>>(),
                              static_cast<uint32_t>(greedy.size())),
                greedy)
          << file << ": " << item["prompt"];
    }
  }
}

// 64 steps after the prompt "Once upon a time", teacher-forced.
TEST_P(GoldenTest, StoriesForcedLogitsOfEveryWeightType) {
  const std::string root = SharedData("models/stories260k");
  BATON_NEED_DATA(root);
  const std::vector<TokenId> prompt = {1, 403, 407, 261, 378};
  std::vector<TokenId> greedy;
  const auto golden = ReadJson(root + "/golden.json");
  for (const auto& item : golden["cases"]) {
    if (item["prompt_ids"].get<std::vector<TokenId>>() == prompt) {
      greedy = item["greedy_ids"].get<std::vector<TokenId>>();
    }
  }
  ASSERT_GE(greedy.size(), 64u);
  struct File {
    const char *weights, *logits;
  };
  for (const File& file :
       {File{"/hf", "/logits_greedy_once_first64.npy"},
        File{"/gguf/stories260K.F32.gguf", "/logits_greedy_once_first64.npy"},
        File{"/gguf/stories260K.F16.gguf", "/gguf/logits_forced_once_64.F16.npy"},
        File{"/gguf/stories260K-ffn192.Q8_0.gguf", "/gguf/logits_forced_once_64.Q8_0.npy"},
        File{"/gguf/stories260K-ffn192.Q4_0.gguf", "/gguf/logits_forced_once_64.Q4_0.npy"}}) {
    ModelRunner runner(root + file.weights, exact());
    ASSERT_TRUE(runner.ok());
    const Npy expected = ReadNpy(root + file.logits);
    TestSequence sequence = runner.NewSequence(128);
    std::vector<float> logits = runner.Feed(sequence, prompt, 1024, LogitRows::kLast);
    const auto more =
        runner.Feed(sequence, std::span(greedy).first(expected.rows() - 1), 1024, LogitRows::kAll);
    logits.insert(logits.end(), more.begin(), more.end());
    ExpectNear(logits, expected.values, 2e-4f, file.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(AllBackends, GoldenTest, ::testing::ValuesIn(AvailableIsas()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace baton::model
