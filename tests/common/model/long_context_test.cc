// SPDX-License-Identifier: Apache-2.0
// Positions far out, with a context and a rotation base that the configuration
// stretches.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/common/model/model_runner.h"

namespace baton::model {
namespace {

constexpr uint32_t kContext = 32768;
constexpr uint32_t kRopeRatio = 50;
constexpr uint32_t kHeadDim = 16, kRotaryDims = 8;  // of the embedded model

// The embedded model with another context and base.
class LongContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string root = std::string(BATON_SOURCE_DIR) + "/common/checkpoint/embedded";
    folder_ = ::testing::TempDir() + "/long_context_test";
    std::filesystem::create_directories(folder_);
    std::ifstream file(root + "/config.json");
    auto config = nlohmann::json::parse(file);
    config["seq_length"] = kContext;
    config["rope_ratio"] = kRopeRatio;
    std::ofstream(folder_ + "/config.json") << config;
    std::filesystem::copy_file(root + "/model.safetensors", folder_ + "/model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    runner_ = std::make_unique<ModelRunner>(folder_, Options("auto", Precision::kExact, 1), 4);
    ASSERT_TRUE(runner_->ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // One token at `position`, after a context that is the same block throughout.
  absl::Status RunAt(uint32_t position, std::vector<float>& logits) {
    const std::vector<TokenId> tokens = {300};
    std::vector<kv::BlockId> blocks(kv::BlocksForTokens(uint64_t{position} + 1), kv::BlockId{1});
    blocks.back() = kv::BlockId{0};
    const Slice slice{tokens, position, blocks, LogitRows::kLast};
    logits.resize(runner_->vocabulary());
    return runner_->model().Forward({&slice, 1}, runner_->arena(), logits, nullptr);
  }

  // K of the first layer, which depends on the token and the rotation alone.
  std::vector<float> KeyAt(uint32_t position) {
    TestSequence sequence;
    sequence.blocks.assign(position / kv::kBlockTokens + 1, kv::BlockId{0});
    return runner_->KvRow(sequence, 0, position, 0, false, kHeadDim);
  }

  std::string folder_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_F(LongContextTest, KeysAreRotatedByTheStretchedAngleUpToTheLastPosition) {
  std::vector<float> logits;
  ASSERT_TRUE(RunAt(0, logits).ok());
  const std::vector<float> plain = KeyAt(0);
  for (uint32_t position : {2049u, 8191u, 8192u, 8193u, kContext - 1}) {
    ASSERT_TRUE(RunAt(position, logits).ok());
    for (float logit : logits) ASSERT_TRUE(std::isfinite(logit));
    const std::vector<float> key = KeyAt(position);
    for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
      const double x = plain[2 * i], y = plain[2 * i + 1];
      const double angle = 2 * i < kRotaryDims
                               ? position * std::pow(10000.0 * kRopeRatio, -2.0 * i / kRotaryDims)
                               : 0.0;
      EXPECT_NEAR(key[2 * i], x * std::cos(angle) - y * std::sin(angle), 1e-5) << position;
      EXPECT_NEAR(key[2 * i + 1], y * std::cos(angle) + x * std::sin(angle), 1e-5) << position;
    }
  }
}

TEST_F(LongContextTest, PositionBeyondTheContextIsRefused) {
  std::vector<float> logits;
  EXPECT_EQ(RunAt(kContext, logits).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::model
