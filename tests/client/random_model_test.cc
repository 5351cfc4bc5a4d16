// SPDX-License-Identifier: Apache-2.0
#include "client/cli/random_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/cli/model_shapes.h"
#include "client/cli/sequence_runner.h"
#include "common/model/load.h"

namespace baton::cli {
namespace {

using checkpoint::TensorType;

class RandomModelTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"a", "b"}) std::filesystem::remove(Path(name));
  }
  static std::string Path(const std::string& name) {
    return ::testing::TempDir() + "/baton-random-" + std::to_string(getpid()) + name + ".gguf";
  }
  static absl::Status Write(const std::string& name, TensorType type, uint64_t seed = 1,
                            const std::string& shape = "tiny") {
    return WriteRandomModel(*FindShape(shape), type, seed, Path(name));
  }
  static std::string Read(const std::string& name) {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

class RandomModelTypesTest : public RandomModelTest,
                             public ::testing::WithParamInterface<TensorType> {};

TEST_P(RandomModelTypesTest, ReadsBackWithTheShapeAndTheDeviationItPromises) {
  ASSERT_TRUE(Write("a", GetParam()).ok());
  const auto checkpoint = checkpoint::OpenCheckpoint(Path("a"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const checkpoint::ModelConfig& config = (*checkpoint)->config();
  const checkpoint::ModelConfig wanted = *FindShape("tiny");
  EXPECT_EQ(config.architecture, wanted.architecture);
  EXPECT_EQ(config.layers, wanted.layers);
  EXPECT_EQ(config.kv_heads, wanted.kv_heads);
  EXPECT_EQ(config.head_dim, wanted.head_dim);
  EXPECT_EQ(config.vocabulary, wanted.vocabulary);
  EXPECT_EQ(config.rotary_dims, wanted.rotary_dims);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(*(*checkpoint)->LoadTokenizer(), nullptr);
  ASSERT_TRUE((*checkpoint)->Weights().ok());
  for (const checkpoint::TensorView& tensor : (*checkpoint)->tensors()) {
    if (tensor.shape.size() != 2) continue;
    EXPECT_EQ(tensor.type, GetParam());
    std::vector<float> values(tensor.shape[0] * tensor.shape[1]);
    checkpoint::DequantizeRange(tensor, 0, values);
    double sum = 0, squares = 0;
    for (float value : values) {
      sum += value;
      squares += double{value} * value;
    }
    const double count = static_cast<double>(values.size());
    const double scale = std::sqrt(static_cast<double>(tensor.shape[1]));
    EXPECT_NEAR(sum / count * scale, 0, 0.05) << tensor.name;
    EXPECT_NEAR(std::sqrt(squares / count) * scale, 1, 0.03) << tensor.name;
  }
}

TEST_P(RandomModelTypesTest, RunsWithSaneLogits) {
  ASSERT_TRUE(Write("a", GetParam()).ok());
  const auto checkpoint = checkpoint::OpenCheckpoint(Path("a"));
  ASSERT_TRUE(checkpoint.ok());
  const auto model = model::LoadModel(**checkpoint, {});
  ASSERT_TRUE(model.ok()) << model.status();
  auto runner = SequenceRunner::Create(model->get(), 1, 64);
  ASSERT_TRUE(runner.ok());
  std::vector<TokenId> tokens(50);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 5);
  std::vector<float> logits(256);
  ASSERT_TRUE(runner->Prefill(0, tokens, logits).ok());
  double squares = 0;
  for (float logit : logits) squares += double{logit} * logit;
  const double deviation = std::sqrt(squares / 256);
  EXPECT_GT(deviation, 0.5);
  EXPECT_LT(deviation, 2);
}

TEST_P(RandomModelTypesTest, BytesDependOnTheSeedAlone) {
  ASSERT_TRUE(Write("a", GetParam(), 7).ok());
  ASSERT_TRUE(Write("b", GetParam(), 7).ok());
  EXPECT_TRUE(Read("a") == Read("b"));
  std::filesystem::remove(Path("b"));
  ASSERT_TRUE(Write("b", GetParam(), 8).ok());
  EXPECT_EQ(Read("a").size(), Read("b").size());
  EXPECT_FALSE(Read("a") == Read("b"));
}

INSTANTIATE_TEST_SUITE_P(Types, RandomModelTypesTest,
                         ::testing::Values(TensorType::kQ4_0, TensorType::kQ8_0, TensorType::kF16),
                         [](const auto& test) {
                           return std::string(checkpoint::TensorTypeName(test.param));
                         });

TEST_F(RandomModelTest, OverwritesNothing) {
  std::ofstream(Path("a")) << "precious";
  EXPECT_EQ(Write("a", TensorType::kQ4_0).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("a"), "precious");
}

TEST_F(RandomModelTest, LeavesNoFileAfterAnError) {
  EXPECT_EQ(Write("a", TensorType::kQ4_1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
}

// The real shape of a tied Llama: names, RoPE base and sizes as published.
TEST_F(RandomModelTest, SmolLm2HasItsParameters) {
  ASSERT_TRUE(Write("a", TensorType::kQ4_0, 1, "smollm2-135m").ok());
  const auto checkpoint = checkpoint::OpenCheckpoint(Path("a"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE((*checkpoint)->Weights().ok()) << (*checkpoint)->Weights().status();
  EXPECT_EQ((*checkpoint)->config().rope_base, 100'000);
  EXPECT_TRUE((*checkpoint)->config().tied_head);
  uint64_t parameters = 0;
  for (const checkpoint::TensorView& tensor : (*checkpoint)->tensors()) {
    uint64_t count = 1;
    for (uint64_t extent : tensor.shape) count *= extent;
    parameters += count;
  }
  EXPECT_EQ(parameters, 134'515'008u);
}

}  // namespace
}  // namespace baton::cli
