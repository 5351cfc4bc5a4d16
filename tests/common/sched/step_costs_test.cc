// SPDX-License-Identifier: Apache-2.0
#include "common/sched/step_costs.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::sched {
namespace {

constexpr StepCosts kTrue{.prompt_step = 2e-3,
                          .prompt_token = 5e-4,
                          .prompt_attended = 2e-8,
                          .decode_step = 2e-3,
                          .row = 3e-4,
                          .row_attended = 1e-7};

StepShape RandomStep(std::mt19937& random, bool prompts) {
  StepShape shape;
  const uint32_t rows = random() % 32 + (prompts ? 0 : 1);
  for (uint32_t i = 0; i < rows; ++i) shape.AddRow(random() % 4000);
  if (prompts) shape.AddChunk(random() % 4000, 1 + random() % 512);
  return shape;
}

TEST(StepCosts, AreFoundFromRandomSteps) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  StepCostEstimator estimator;
  for (int i = 0; i < 2000; ++i) {
    const StepShape shape = RandomStep(random, i % 4 == 0);
    estimator.Observe(shape, kTrue.Step(shape) * noise(random));
  }
  for (int i = 0; i < 100; ++i) {
    const StepShape shape = RandomStep(random, i % 2 == 0);
    const double ratio = absl::FDivDuration(estimator.costs().Step(shape), kTrue.Step(shape));
    EXPECT_NEAR(ratio, 1, 0.1) << shape.prompt_tokens << " " << shape.rows;
  }
  EXPECT_NEAR(
      absl::FDivDuration(estimator.costs().Prompt(0, 1500, 512), kTrue.Prompt(0, 1500, 512)), 1,
      0.1);
}

// At a long context the rows that check guesses compute with all of it, too.
TEST(StepCosts, KnowWhatFurtherRowsOfASequenceCostByItsContext) {
  constexpr StepCosts kWithDrafts{
      .decode_step = 2e-3, .row = 1e-4, .row_attended = 1e-6, .again_attended = 3e-7};
  std::mt19937 random(5);
  StepCostEstimator estimator;
  for (int i = 0; i < 2000; ++i) {
    StepShape shape;
    shape.AddRow(random() % 8000, 1 + random() % 3 * (random() % 5));
    estimator.Observe(shape, kWithDrafts.Step(shape));
  }
  EXPECT_NEAR(estimator.costs().again_attended / kWithDrafts.again_attended, 1, 0.1);
  EXPECT_NEAR(estimator.costs().row / kWithDrafts.row, 1, 0.1);
}

TEST(StepCosts, FollowAChangeOfSpeed) {
  std::mt19937 random(2);
  StepCostEstimator estimator;
  for (int i = 0; i < 3000; ++i) {
    const StepShape shape = RandomStep(random, true);
    estimator.Observe(shape, kTrue.Step(shape) * (i < 2000 ? 1 : 2));
  }
  EXPECT_NEAR(
      absl::FDivDuration(estimator.costs().Prompt(0, 1000, 512), kTrue.Prompt(0, 1000, 512)), 2,
      0.1);
}

TEST(StepCosts, LongDecodingDoesNotFadeWhatPromptsCost) {
  std::mt19937 random(3);
  StepCostEstimator estimator;
  for (int i = 0; i < 200; ++i) {
    const StepShape shape = RandomStep(random, true);
    estimator.Observe(shape, kTrue.Step(shape));
  }
  const absl::Duration before = estimator.costs().Prompt(0, 800, 512);
  for (int i = 0; i < 20000; ++i) {
    const StepShape shape = RandomStep(random, false);
    estimator.Observe(shape, kTrue.Step(shape));
  }
  EXPECT_EQ(estimator.costs().Prompt(0, 800, 512), before);
}

// All prompts alike: the cost is taken to be that of the tokens.
TEST(StepCosts, AreSoundWhenNothingVaries) {
  StepCostEstimator estimator;
  EXPECT_FALSE(estimator.costs().knows_prompts());
  StepShape shape;
  shape.AddChunk(0, 500);
  for (int i = 0; i < 50; ++i) estimator.Observe(shape, absl::Milliseconds(250));
  ASSERT_TRUE(estimator.costs().knows_prompts());
  EXPECT_FALSE(estimator.costs().knows_rows());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(estimator.costs().Step(shape)), 250, 1e-3);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(estimator.costs().Prompt(0, 50, 512)), 25, 3);
}

TEST(StepCosts, OneSlowStepAmongFastOnesDoesNotDecide) {
  StepCostEstimator estimator;
  StepShape shape;
  shape.AddRow(100);
  for (int i = 0; i < 100; ++i) {
    estimator.Observe(shape, i % 20 == 10 ? absl::Seconds(1) : absl::Milliseconds(4));
  }
  EXPECT_NEAR(absl::ToDoubleMilliseconds(estimator.costs().Step(shape)), 4, 0.5);
}

}  // namespace
}  // namespace baton::sched
