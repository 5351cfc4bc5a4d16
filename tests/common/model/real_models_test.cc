// SPDX-License-Identifier: Apache-2.0
// Models that people use against a float32 numpy forward pass of their weights.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/common/model/kv_continuation.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

constexpr uint32_t kLongPrompt = 1000;
// Below this margin between the two best logits the order of sums decides.
constexpr double kSafeMargin = 0.01;

nlohmann::json ReadGolden(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// Steps before the first one whose margin is too small.
size_t SafeSteps(const nlohmann::json& item) {
  const auto margins = item["margin"].get<std::vector<double>>();
  size_t steps = 0;
  while (steps < margins.size() && margins[steps] >= kSafeMargin) ++steps;
  return steps;
}

// Real weight types in the fast formats, whatever the chunks and threads.
void CheckFastBits(const std::string& model, uint32_t count, std::span<const uint32_t> chunks) {
  std::vector<float> expected;
  for (uint32_t threads : {2u, 1u}) {
    LoadOptions options = Options("auto", Precision::kFast, threads);
    ModelRunner runner(model, options);
    ASSERT_TRUE(runner.ok());
    const auto tokens = RandomTokens(count, runner.vocabulary(), 1);
    for (uint32_t chunk : chunks) {
      TestSequence sequence = runner.NewSequence(count, chunk);
      const auto logits = runner.Feed(sequence, tokens, chunk, LogitRows::kLast);
      runner.Reset();
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << "chunk " << chunk << ", threads " << threads;
    }
  }
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = baton::testing::DemoModel();
    BATON_NEED_DATA(model_);
    const std::string golden = baton::testing::SharedData("models/smollm2/golden.json");
    BATON_NEED_DATA(golden);
    golden_ = ReadGolden(golden);
  }

  void CheckGreedyIds(bool long_prompts) {
    LoadOptions options = Options("auto", Precision::kExact);
    options.max_step_tokens = 512;
    ModelRunner runner(model_, options, 256);
    ASSERT_TRUE(runner.ok());
    size_t checked = 0;
    for (const auto& item : golden_) {
      const auto prompt = item["prompt_ids"].get<std::vector<TokenId>>();
      if ((prompt.size() > kLongPrompt) != long_prompts) continue;
      auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
      greedy.resize(SafeSteps(item));
      ASSERT_FALSE(greedy.empty()) << item["name"];
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(runner.Greedy(prompt, static_cast<uint32_t>(greedy.size())), greedy)
          << item["name"];
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      std::printf("%s: %zu + %zu tokens in %.2f s\n", item["name"].get<std::string>().c_str(),
                  prompt.size(), greedy.size(), seconds.count());
      ++checked;
    }
    EXPECT_EQ(checked, long_prompts ? 2u : 13u);
  }

  std::string model_;
  nlohmann::json golden_;
};

TEST_F(SmolLm2Test, GreedyIdsOfShortPrompts) { CheckGreedyIds(false); }

TEST_F(SmolLm2Test, GreedyIdsOfLongPrompts) { CheckGreedyIds(true); }

TEST_F(SmolLm2Test, FastRowsHaveTheSameBitsInEveryChunkAndThreadCount) {
  CheckFastBits(model_, 300, std::array{512u, 31u, 100u});
}

// Prompts computed with KV of one type, continued with another, against bf16
// from end to end: as near as int8 KV is allowed to be.
TEST_F(SmolLm2Test, MixedKvTypesStayNearBf16) {
  const auto runner = [&](kv::KvType type) {
    LoadOptions options = Options("auto", Precision::kExact);
    options.kv_type = type;
    return ModelRunner(model_, options, 32);
  };
  ModelRunner bf16 = runner(kv::KvType::kBf16), own = runner(kv::KvType::kBf16);
  ModelRunner int8 = runner(kv::KvType::kInt8);
  ASSERT_TRUE(bf16.ok() && own.ok() && int8.ok());
  double to_int8 = 0, to_bf16 = 0;
  size_t steps = 0;
  for (const auto& item : golden_) {
    const auto prompt = item["prompt_ids"].get<std::vector<TokenId>>();
    const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
    if (prompt.size() + greedy.size() > 400) continue;
    const auto expected = Continue(bf16, own, prompt, greedy);
    const auto kl = [&](ModelRunner& prefill, ModelRunner& decode) {
      return static_cast<double>(greedy.size()) *
             MeanKl(expected, Continue(prefill, decode, prompt, greedy), own.vocabulary());
    };
    to_int8 += kl(bf16, int8);
    to_bf16 += kl(int8, bf16);
    steps += greedy.size();
  }
  ASSERT_GT(steps, 200u);
  std::printf("mean KL over %zu positions: bf16 to int8 %.6f, int8 to bf16 %.6f\n", steps,
              to_int8 / static_cast<double>(steps), to_bf16 / static_cast<double>(steps));
  EXPECT_LT(to_int8 / static_cast<double>(steps), 7e-4);
  EXPECT_LT(to_bf16 / static_cast<double>(steps), 7e-4);
}

// Forced along the golden ids, which says the same as decoding them and needs
// fewer passes over 6 GB of float32 weights.
TEST(Qwen25CoderTest, GreedyIds) {
  const std::string model = baton::testing::QwenModel();
  BATON_NEED_MODEL(model);
  const std::string golden = baton::testing::SharedData("models/qwen25coder/golden.json");
  BATON_NEED_DATA(golden);
  ModelRunner runner(model, Options("auto", Precision::kExact), 16);
  ASSERT_TRUE(runner.ok());
  size_t steps = 0;
  for (const auto& item : ReadGolden(golden)) {
    auto ids = item["prompt_ids"].get<std::vector<TokenId>>();
    const size_t prompt = ids.size();
    const auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
    ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
    TestSequence sequence = runner.NewSequence(static_cast<uint32_t>(ids.size()));
    const auto logits = runner.Feed(sequence, ids, 512, LogitRows::kAll);
    runner.Reset();
    const size_t width = runner.vocabulary();
    for (size_t i = 0; i < SafeSteps(item); ++i, ++steps) {
      ASSERT_EQ(Argmax(std::span(logits).subspan((prompt - 1 + i) * width, width)), greedy[i])
          << item["name"] << ", step " << i;
    }
  }
  EXPECT_EQ(steps, 215u);
}

TEST(Qwen25CoderTest, FastRowsHaveTheSameBitsInEveryChunkAndThreadCount) {
  const std::string model = baton::testing::QwenModel();
  BATON_NEED_MODEL(model);
  CheckFastBits(model, 60, std::array{60u, 7u});
}

}  // namespace
}  // namespace baton::model
