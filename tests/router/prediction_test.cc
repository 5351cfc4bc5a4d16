// SPDX-License-Identifier: Apache-2.0
#include "router/prediction.h"

#include <gtest/gtest.h>

#include "tests/router/fakes.h"

namespace baton::router {
namespace {

// A millisecond per prompt token, 2 per step without, half of one per row.
void SetCosts(Worker& worker) {
  v1::StepCosts* costs = worker.load.mutable_costs();
  costs->set_prompt_token(1e-3);
  costs->set_decode_step(2e-3);
  costs->set_row(0.5e-3);
}

class PredictionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    prefill_.hello = MakeHello("p", v1::WORKER_ROLE_PREFILL).hello();
    decode_.hello = MakeHello("d", v1::WORKER_ROLE_DECODE).hello();
  }
  std::optional<Prediction> PredictFor(uint64_t prompt, uint64_t lacks_local) {
    return Predict({.prefill = &prefill_,
                    .prefill_tokens = prompt,
                    .decode = &decode_,
                    .local_tokens = lacks_local,
                    .prompt_tokens = prompt,
                    .handoff = absl::Milliseconds(5)});
  }
  static void ExpectMs(absl::Duration time, double ms) {
    EXPECT_NEAR(absl::ToDoubleMilliseconds(time), ms, 1e-3);
  }

  Worker prefill_, decode_;
};

TEST_F(PredictionTest, IsNoneUntilAPrefillWorkerHasMeasured) {
  SetCosts(decode_);
  EXPECT_FALSE(PredictFor(10, 10).has_value());
}

TEST_F(PredictionTest, AddsUpWhatEachWayTakes) {
  SetCosts(prefill_);
  SetCosts(decode_);
  const auto prediction = PredictFor(10, 10);
  ASSERT_TRUE(prediction.has_value());
  ExpectMs(prediction->split, 10 + 5 + 2.5);
  ExpectMs(prediction->local, 10 + 2.5);
  ExpectMs(prediction->stall, 10);
}

TEST_F(PredictionTest, QueuesAndRunningStreamsCount) {
  SetCosts(prefill_);
  SetCosts(decode_);
  prefill_.own_prompt_tokens = 600;
  decode_.foreign_prompt_tokens = 100;
  decode_.foreign_sequences = 3;  // a step of 4 rows takes 4 ms
  const auto prediction = PredictFor(1000, 1000);
  ExpectMs(prediction->split, 600 + 1000 + 5 + 4);
  ExpectMs(prediction->local, 100 + 1000 + 2 * 4 + 4);
  ExpectMs(prediction->stall, 512);
}

TEST_F(PredictionTest, WhatIsCachedIsNotComputed) {
  SetCosts(prefill_);
  SetCosts(decode_);
  const auto prediction = PredictFor(1000, 8);
  ExpectMs(prediction->local, 8 + 2.5);
  ExpectMs(prediction->stall, 8);
}

TEST_F(PredictionTest, DecodeWorkerWithoutMeasurementsIsTakenToBeAsFast) {
  SetCosts(prefill_);
  const auto prediction = PredictFor(100, 100);
  ASSERT_TRUE(prediction.has_value());
  ExpectMs(prediction->local, 100);
}

TEST_F(PredictionTest, NonsenseFromAWorkerIsNotBelieved) {
  SetCosts(prefill_);
  prefill_.load.mutable_costs()->set_prompt_step(-1);
  prefill_.load.mutable_costs()->set_prompt_attended(std::numeric_limits<double>::quiet_NaN());
  prefill_.load.mutable_costs()->set_row(1e300);
  const sched::StepCosts costs = CostsOf(prefill_);
  EXPECT_EQ(costs.prompt_step, 0);
  EXPECT_EQ(costs.prompt_attended, 0);
  EXPECT_EQ(costs.row, 0);
}

}  // namespace
}  // namespace baton::router
