// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/model_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/checkpoint/checkpoint.h"

namespace baton::cli {
namespace {

class ModelWork : public ::testing::Test {
 protected:
  void SetUp() override {
    checkpoint_ = *checkpoint::OpenCheckpoint("embedded");
    weights_ = *checkpoint_->Weights();
    model::LoadOptions options;
    options.isa = "ref";
    plan_ = *model::PlanCompute(*checkpoint_, weights_, options);
    matrices_ = ListMatrices(weights_, plan_);
  }
  Roofline Of(const StepWork& work, double peak, double bandwidth) const {
    const std::vector<InstructionPeak> peaks = {
        {"narrow", Element::kF32, false, {peak, peak}},
        {"narrow bytes", Element::kInt8, false, {peak, peak}}};
    return RooflineOf(work, matrices_, checkpoint_->config(), plan_, peaks, bandwidth);
  }

  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  checkpoint::ModelWeights weights_;
  model::ComputePlan plan_ = {};
  std::vector<MatrixWork> matrices_;
};

TEST_F(ModelWork, ListsEveryMatrixOnce) {
  const checkpoint::ModelConfig& config = checkpoint_->config();
  uint32_t count = 0;
  double operations = 0;
  for (const MatrixWork& matrix : matrices_) {
    count += matrix.count;
    operations += matrix.count * matrix.operations();
  }
  EXPECT_EQ(count, 7 * config.layers + 1);
  const double heads = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  EXPECT_EQ(operations,
            2.0 * config.hidden *
                (config.layers * (2 * heads + 2 * kv + 3.0 * config.ffn) + config.vocabulary));
  EXPECT_TRUE(matrices_.back().head);
  EXPECT_EQ(matrices_.back().name, "head");
  std::vector<std::string> names;
  for (const MatrixWork& matrix : matrices_) names.push_back(matrix.name);
  EXPECT_THAT(names, ::testing::Contains("gate, up"));
}

TEST_F(ModelWork, APromptAttendsToATriangleAndReadsItsWeightsOncePerChunk) {
  const StepWork work = PromptWork(10, 4);
  EXPECT_EQ(work.steps, 3u);
  EXPECT_EQ(work.attended, 55);      // 1 + 2 + … + 10
  EXPECT_EQ(work.kv_tokens, 4 + 8);  // of earlier chunks
  EXPECT_EQ(work.logit_rows, 1);
}

TEST_F(ModelWork, TheLongerOfComputingAndReadingLimits) {
  const StepWork step = DecodeWork(2, 100);
  const Roofline slow_memory = Of(step, 1e12, 1e6), slow_core = Of(step, 1e6, 1e12);
  EXPECT_STREQ(slow_memory.limit(), "memory");
  EXPECT_STREQ(slow_core.limit(), "compute");
  uint64_t bytes = 0;
  for (const MatrixWork& matrix : matrices_) bytes += matrix.count * matrix.bytes;
  const double kv = 2 * 100 * static_cast<double>(plan_.layout.BlockBytes()) / kv::kBlockTokens;
  EXPECT_DOUBLE_EQ(slow_memory.seconds(), (static_cast<double>(bytes) + kv) / 1e6);
  // Two sequences: twice the operations, the same weights.
  EXPECT_DOUBLE_EQ(Of(DecodeWork(4, 100), 1e6, 1e12).seconds(), 2 * slow_core.seconds());
  EXPECT_LT(Of(DecodeWork(4, 100), 1e12, 1e6).seconds(), 2 * slow_memory.seconds());
}

TEST_F(ModelWork, WithoutAPeakThereIsNoBound) {
  EXPECT_TRUE(std::isinf(
      RooflineOf(DecodeWork(1, 1), matrices_, checkpoint_->config(), plan_, {}, 1e9).seconds()));
}

}  // namespace
}  // namespace baton::cli
