// SPDX-License-Identifier: Apache-2.0
#include "common/sched/step_costs.h"

#include <algorithm>

namespace baton::sched {
namespace {

// Of what an observation counts, the next one leaves so much: the last 200 or
// so decide.
constexpr double kFade = 0.995;
constexpr int kSweeps = 16;
// Fewer observations are an accident: caches are cold, pages new.
constexpr double kEnough = 4;

}  // namespace

void StepShape::AddChunk(uint32_t first, uint32_t tokens) {
  prompt_tokens += tokens;
  prompt_attended += tokens * (first + tokens / 2.0);
}

void StepShape::AddRow(uint32_t context, uint32_t count) {
  rows += count;
  rows_attended += context;
  again_attended += static_cast<double>(context) * (count - 1);
}

absl::Duration StepCosts::Step(const StepShape& shape) const {
  return absl::Seconds((shape.prompt_tokens > 0 ? prompt_step : decode_step) +
                       prompt_token * shape.prompt_tokens +
                       prompt_attended * shape.prompt_attended + row * shape.rows +
                       row_attended * shape.rows_attended + again_attended * shape.again_attended);
}

absl::Duration StepCosts::Prompt(uint32_t first, uint32_t tokens, uint32_t chunk_tokens) const {
  const uint32_t steps = (tokens + chunk_tokens - 1) / chunk_tokens;
  return absl::Seconds(prompt_step * steps + prompt_token * tokens +
                       prompt_attended * tokens * (first + tokens / 2.0));
}

template <size_t kFeatures>
void RecentFit<kFeatures>::Observe(const Row& features, double value) {
  observations_ = kFade * observations_ + 1;
  for (size_t i = 0; i < kFeatures; ++i) {
    for (size_t j = 0; j < kFeatures; ++j) {
      gram_[i][j] = kFade * gram_[i][j] + features[i] * features[j] / (value * value);
    }
    moment_[i] = kFade * moment_[i] + features[i] / value;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t i = 0; i < kFeatures; ++i) {
      if (gram_[i][i] <= 0) continue;
      double rest = moment_[i];
      for (size_t j = 0; j < kFeatures; ++j) rest -= j == i ? 0 : gram_[i][j] * solution_[j];
      solution_[i] = std::max(0.0, rest / gram_[i][i]);
    }
  }
}

template class RecentFit<3>;
template class RecentFit<4>;

void StepCostEstimator::Observe(const StepShape& shape, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds <= 0) return;
  if (shape.prompt_tokens == 0) {
    rows_.Observe({1, static_cast<double>(shape.rows), shape.rows_attended, shape.again_attended},
                  seconds);
    if (rows_.observations() < kEnough) return;
    costs_.decode_step = rows_.coefficients()[0];
    costs_.row = rows_.coefficients()[1];
    costs_.row_attended = rows_.coefficients()[2];
    costs_.again_attended = rows_.coefficients()[3];
    return;
  }
  const double of_rows = costs_.row * shape.rows + costs_.row_attended * shape.rows_attended;
  // At least a tenth: a step that was faster than its rows says little.
  prompts_.Observe({static_cast<double>(shape.prompt_tokens), 1, shape.prompt_attended},
                   std::max(seconds - of_rows, seconds / 10));
  if (prompts_.observations() < kEnough) return;
  costs_.prompt_token = prompts_.coefficients()[0];
  costs_.prompt_step = prompts_.coefficients()[1];
  costs_.prompt_attended = prompts_.coefficients()[2];
}

}  // namespace baton::sched
