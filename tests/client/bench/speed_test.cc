// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/speed.h"

#include <gtest/gtest.h>

#include "common/checkpoint/checkpoint.h"
#include "common/model/fake/fake_model.h"
#include "common/model/load.h"

namespace baton::cli {
namespace {

model::FakeOptions SmallSteps() {
  model::FakeOptions options;
  options.max_step_tokens = 24;
  options.context_tokens = 1024;
  return options;
}

TEST(MeasureSpeed, NamesEachMeasurementAsThePeersToolDoes) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  SpeedOptions options;
  options.prompt_tokens = 40;
  options.decode_steps = 3;
  options.batches = {1, 4};
  options.repetitions = 2;
  size_t heard = 0;
  const auto results = MeasureSpeed(model.get(), options, [&](const auto&) { ++heard; });
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_EQ(heard, 3u);
  EXPECT_EQ((*results)[0].name, "prompt40");
  EXPECT_EQ((*results)[1].name, "decode1");
  EXPECT_EQ((*results)[2].name, "decode4");
  for (const SpeedResult& result : *results) EXPECT_GT(result.tokens_per_second, 0) << result.name;
}

TEST(MeasureSpeed, RefusesWorkThatDoesNotFit) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  const auto measure = [&](SpeedOptions options) {
    return MeasureSpeed(model.get(), options, {}).status().code();
  };
  EXPECT_EQ(measure({.prompt_tokens = 2000}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(measure({.batches = {25}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(measure({.batches = {0}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(measure({.batches = {}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(measure({.repetitions = 0}), absl::StatusCode::kInvalidArgument);
}

TEST(MeasureSpeed, TellsTheTimeOfEachPartOfTheBestRepetition) {
  const auto checkpoint = *checkpoint::OpenCheckpoint("embedded");
  model::StepProfile profile;
  model::LoadOptions load;
  load.threads = 1;  // of two, the other may take all of a prompt's chunks
  load.profile = &profile;
  const auto model = *model::LoadModel(*checkpoint, load);
  SpeedOptions options;
  options.prompt_tokens = 100;
  options.decode_steps = 5;
  options.batches = {2};
  options.profile = &profile;
  const auto results = MeasureSpeed(model.get(), options, {});
  ASSERT_TRUE(results.ok()) << results.status();
  for (const SpeedResult& result : *results) {
    double sum = 0;
    for (size_t i = 0; i < model::kStepParts; ++i) {
      sum += result.profile.seconds(static_cast<model::StepPart>(i));
    }
    // What the parts took is less than all of it, and not much: planning and
    // the greedy choice lie between steps.
    const double whole = (result.name == "prompt100" ? 100 : 2 * 5) / result.tokens_per_second;
    EXPECT_GT(sum, 0.2 * whole) << result.name;
    EXPECT_LE(sum, whole) << result.name;
    for (auto part : {model::StepPart::kNorm, model::StepPart::kQkv, model::StepPart::kAttention,
                      model::StepPart::kAttentionOut, model::StepPart::kGateUp,
                      model::StepPart::kDown, model::StepPart::kHead}) {
      EXPECT_GT(result.profile.seconds(part), 0) << model::StepPartName(part);
    }
  }
}

TEST(MeasureSpeed, SaysWhatTheWorkWas) {
  const auto model = *model::MakeFakeModel(SmallSteps());
  const auto results = MeasureSpeed(model.get(),
                                    {.prompt_tokens = 40,
                                     .decode_steps = 4,
                                     .decode_context = 10,
                                     .batches = {3},
                                     .repetitions = 1},
                                    {});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].tokens, 40u);
  EXPECT_EQ((*results)[0].work.steps, 2u);  // of 24 tokens at most
  EXPECT_EQ((*results)[1].tokens, 3u);
  EXPECT_EQ((*results)[1].work.attended, 3 * 12.5);  // 11, 12, 13 and 14 tokens
}

}  // namespace
}  // namespace baton::cli
