// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/kernel_speed.h"

#include <gtest/gtest.h>

#include "common/checkpoint/checkpoint.h"

namespace baton::cli {
namespace {

constexpr double kSeconds = 0.01;
constexpr uint64_t kBeyondCaches = 1 << 20;  // as if they were small

class KernelSpeedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    checkpoint_ = *checkpoint::OpenCheckpoint("embedded");
    weights_ = *checkpoint_->Weights();
    plan_ = *model::PlanCompute(*checkpoint_, weights_, {});
    matrices_ = ListMatrices(weights_, plan_);
  }

  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  checkpoint::ModelWeights weights_;
  model::ComputePlan plan_ = {};
  std::vector<MatrixWork> matrices_;
};

TEST_F(KernelSpeedTest, EveryShapeIsMeasuredAtEveryNumberOfRows) {
  for (const MatrixWork& matrix : matrices_) {
    for (uint32_t rows : {1u, 7u, 63u, 64u, 100u}) {
      const KernelSpeed speed =
          MeasureMatrix(matrix, plan_, rows, 0.09, 2, kBeyondCaches, kSeconds);
      EXPECT_GT(speed.operations.best, 1e6) << matrix.name << " rows " << rows;
      EXPECT_EQ(speed.bytes_per_operation > 0, rows < kPromptRows) << rows;
    }
  }
}

TEST_F(KernelSpeedTest, BytesOfADecodeStepAreThoseOfThePackedMatrix) {
  const MatrixWork& head = matrices_.back();
  const KernelSpeed speed = MeasureMatrix(head, plan_, 3, 0, 1, kBeyondCaches, kSeconds);
  // Per operation of whole panels: what pads the last one counts on both sides.
  const double padded =
      3.0 * 2 * kernels::PanelCount(head.outputs) * kernels::kPanelOutputs * head.inputs;
  EXPECT_DOUBLE_EQ(speed.bytes_per_operation * padded, static_cast<double>(head.bytes));
}

TEST_F(KernelSpeedTest, AttentionInDecodingReadsKvFromMemory) {
  const KernelSpeed prompt = MeasureAttention(plan_, 12, 512, false, 2, kBeyondCaches, kSeconds);
  EXPECT_GT(prompt.operations.best, 1e6);
  EXPECT_EQ(prompt.bytes_per_operation, 0);
  const KernelSpeed decode = MeasureAttention(plan_, 2, 512, true, 2, kBeyondCaches, kSeconds);
  EXPECT_GT(decode.operations.best, 1e6);
  // K and V in bf16: 4 bytes a coordinate, 2 rows x 4 operations.
  EXPECT_DOUBLE_EQ(decode.bytes_per_operation, 0.5);
}

}  // namespace
}  // namespace baton::cli
