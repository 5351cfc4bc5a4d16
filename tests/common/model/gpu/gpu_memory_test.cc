// SPDX-License-Identifier: Apache-2.0
// A GPU's memory: what is asked for before anything is loaded, and what is told
// while steps run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/model/gpu/gpu_model.h"
#include "common/model/gpu/memory_plan.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/gpu/random_llama.h"
#include "tests/common/model/model_runner.h"
#include "tests/testing/environment.h"
#include "tests/testing/test_data.h"

namespace baton::model::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<Model>> LoadSmall(const std::string& path, LoadOptions options) {
  auto checkpoint = checkpoint::OpenCheckpoint(path);
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadGpuModel(**checkpoint, options, *ParseDevice(baton::testing::TestDevice()));
}

// The sum that is checked beforehand is that of what is loaded.
TEST(GpuMemory, WeightsAreCountedToTheByte) {
  const checkpoint::TempFolder folder;
  const std::string llama = folder.path() + "/llama.gguf";
  const auto expect_equal = [](const std::string& path, WeightChoice choice) {
    LoadOptions options = Options("auto", Precision::kFast, 1);
    options.weights = choice;
    const auto model = LoadSmall(path, options);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto checkpoint = *checkpoint::OpenCheckpoint(path);
    checkpoint::ModelWeights stored = *checkpoint->Weights();
    ASSERT_TRUE(ChooseWeights(choice, stored).ok());
    EXPECT_EQ(WeightBytes(stored, checkpoint->config()), (*model)->info().weight_bytes);
  };
  expect_equal("embedded", WeightChoice::kStored);
  for (const uint32_t type : {0u, 3u}) {
    checkpoint::WriteRandomLlama(llama, type, 8);
    expect_equal(llama, WeightChoice::kStored);
  }
  checkpoint::WriteRandomLlama(llama, 0, 0);
  expect_equal(llama, WeightChoice::kInt8);
}

TEST(GpuMemory, StepBuffersAreWithinWhatIsAskedFor) {
  LoadOptions options = Options("auto", Precision::kFast, 1);
  options.max_step_tokens = 64;
  options.max_sequences = 8;
  ModelRunner runner(LoadSmall("embedded", options), 64);
  ASSERT_TRUE(runner.ok());
  const uint64_t asked = StepBytes((*checkpoint::OpenCheckpoint("embedded"))->config(), {64, 8});
  TestSequence sequence = runner.NewSequence(200);
  runner.Feed(sequence, RandomTokens(190, runner.vocabulary(), 1), 64, LogitRows::kLast);
  runner.Feed(sequence, RandomTokens(4, runner.vocabulary(), 2), 1, LogitRows::kLast);
  runner.model().Idle();
  absl::SleepFor(absl::Milliseconds(1100));  // it looks once a second
  runner.model().Idle();
  const auto memory = runner.model().device_memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_GT(memory->step_bytes, 0u);
  EXPECT_LE(memory->step_bytes, asked + (1 << 16));  // with a step's arrays
}

// Memory that other processes can map comes in units of 2 MiB.
uint64_t WholeUnits(uint64_t bytes) {
  constexpr uint64_t kUnit = uint64_t{2} << 20;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

TEST(GpuMemory, SaysWhatItIsUsedFor) {
  ModelRunner runner(LoadSmall("embedded", Options("auto", Precision::kFast, 1)), 64);
  ASSERT_TRUE(runner.ok());
  const auto memory = runner.model().device_memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->weight_bytes, runner.model().info().weight_bytes);
  EXPECT_EQ(memory->kv_bytes, WholeUnits(64 * runner.arena().layout().BlockBytes()));
  EXPECT_GE(memory->total_bytes - memory->free_bytes, memory->weight_bytes + memory->kv_bytes);
}

TEST(GpuMemory, WhatDoesNotFitIsRefusedWithTheArithmeticBeforeAnythingIsLoaded) {
  if (baton::testing::TestDevice() != "emulated") GTEST_SKIP() << "sets the emulator's memory";
  LoadOptions options = Options("auto", Precision::kFast, 1);
  options.plan_kv_blocks = [](const kv::KvLayout& layout, uint32_t /*context*/) {
    return static_cast<uint32_t>((uint64_t{1} << 30) / layout.BlockBytes());
  };
  {
    const EnvironmentSetting size("BATON_EMULATED_GPU_BYTES", "1073741824");
    const absl::Status status = LoadSmall("embedded", options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("weights 0.0"), HasSubstr("KV pool 1.00"), HasSubstr("reserve 0.25"),
              HasSubstr("1.00 of 1.00 GiB free"), HasSubstr("--kv-memory")));
  }
  EXPECT_TRUE(LoadSmall("embedded", options).ok());
}

}  // namespace
}  // namespace baton::model::gpu
