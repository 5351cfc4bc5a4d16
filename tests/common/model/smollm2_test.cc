// SPDX-License-Identifier: Apache-2.0
// The demo model against a float32 numpy forward pass of its weights.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/common/model/model_runner.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

constexpr uint32_t kLongPrompt = 1000;
// Below this margin between the two best logits the order of sums decides.
constexpr double kSafeMargin = 0.01;

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = baton::testing::DemoModel();
    BATON_NEED_DATA(model_);
    const std::string golden = baton::testing::SharedData("models/smollm2/golden.json");
    BATON_NEED_DATA(golden);
    std::ifstream file(golden);
    golden_ = nlohmann::json::parse(file);
  }

  // Steps before the first one whose margin is too small.
  static size_t SafeSteps(const nlohmann::json& item) {
    const auto margins = item["margin"].get<std::vector<double>>();
    size_t steps = 0;
    while (steps < margins.size() && margins[steps] >= kSafeMargin) ++steps;
    return steps;
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

// Real weight types in the fast formats, whatever the chunks and threads.
TEST_F(SmolLm2Test, FastRowsHaveTheSameBitsInEveryChunkAndThreadCount) {
  const auto tokens = RandomTokens(300, 49152, 1);
  std::vector<float> expected;
  for (uint32_t threads : {2u, 1u}) {
    LoadOptions options = Options("auto", Precision::kFast, threads);
    ModelRunner runner(model_, options);
    ASSERT_TRUE(runner.ok());
    for (uint32_t chunk : {512u, 31u, 100u}) {
      TestSequence sequence = runner.NewSequence(300, chunk);
      const auto logits = runner.Feed(sequence, tokens, chunk, LogitRows::kLast);
      runner.Reset();
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << "chunk " << chunk << ", threads " << threads;
    }
  }
}

}  // namespace
}  // namespace baton::model
