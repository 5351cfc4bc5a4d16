// SPDX-License-Identifier: Apache-2.0
// SmolLM2 (Llama, Q4_1) on the emulated GPU against a float32 numpy reference.
#include <gtest/gtest.h>

#include <fstream>

#include "common/model/gpu/gpu_model.h"
#include "nlohmann/json.hpp"
#include "tests/common/model/model_runner.h"
#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

TEST(GpuSmolLm2, FirstTokensOfShortAnswersAreThoseOfTheReference) {
  const std::string model = baton::testing::DemoModel();
  BATON_NEED_DATA(model);
  const std::string golden_path = baton::testing::SharedData("models/smollm2/golden.json");
  BATON_NEED_DATA(golden_path);
  std::ifstream file(golden_path);
  const auto golden = nlohmann::json::parse(file);
  auto checkpoint = checkpoint::OpenCheckpoint(model);
  ASSERT_TRUE(checkpoint.ok());
  LoadOptions options = Options("auto", Precision::kFast, 1);
  options.context_tokens = 1024;
  ModelRunner runner(
      LoadGpuModel(**checkpoint, options, *ParseDevice(baton::testing::TestDevice())), 32);
  ASSERT_TRUE(runner.ok());
  constexpr size_t kMostPrompt = 40, kTokens = 3;
  constexpr double kSafeMargin = 0.3;  // what bf16 activations may turn around
  size_t checked = 0;
  for (const auto& item : golden) {
    const auto prompt = item["prompt_ids"].get<std::vector<TokenId>>();
    if (prompt.size() > kMostPrompt || checked == 1) continue;
    auto greedy = item["greedy_ids"].get<std::vector<TokenId>>();
    const auto margins = item["margin"].get<std::vector<double>>();
    size_t safe = 0;
    while (safe < std::min(kTokens, greedy.size()) && margins[safe] >= kSafeMargin) ++safe;
    if (safe == 0) continue;
    greedy.resize(safe);
    EXPECT_EQ(runner.Greedy(prompt, static_cast<uint32_t>(safe)), greedy) << item["name"];
    ++checked;
  }
  EXPECT_EQ(checked, 1u);
}

}  // namespace
}  // namespace baton::model::gpu
