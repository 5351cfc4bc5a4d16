// SPDX-License-Identifier: Apache-2.0
// What a step of the model costs on this machine, learned while it runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace baton::sched {

// What a step computes.
struct StepShape {
  uint32_t prompt_tokens = 0;
  // Positions that they attend to, summed: n tokens after `first` others see
  // n * (first + n / 2).
  double prompt_attended = 0;
  uint32_t rows = 0;         // decode rows
  double rows_attended = 0;  // their contexts, summed
  // Contexts of a sequence's rows behind its first one, which check guesses.
  double again_attended = 0;

  // One chunk of `tokens` after `first` others.
  void AddChunk(uint32_t first, uint32_t tokens);
  // One sequence's rows; they read its context together, and each computes with it.
  void AddRow(uint32_t context, uint32_t count = 1);
};

// A linear model, in seconds. Zero means free, or not known yet: see known().
struct StepCosts {
  double prompt_step = 0;      // of a step with prompt tokens
  double prompt_token = 0;     // per token of a prompt
  double prompt_attended = 0;  // per position that such a token attends to
  double decode_step = 0;      // of a step without
  double row = 0;              // per decode row
  double row_attended = 0;     // per position of its context
  double again_attended = 0;   // ... of a row behind another one of its sequence

  bool knows_prompts() const { return prompt_step + prompt_token + prompt_attended > 0; }
  bool knows_rows() const { return decode_step + row + row_attended > 0; }

  absl::Duration Step(const StepShape& shape) const;
  // A prompt's tokens [first, first + tokens) alone, in steps of at most
  // `chunk_tokens`.
  absl::Duration Prompt(uint32_t first, uint32_t tokens, uint32_t chunk_tokens) const;
};

// Least squares with nonnegative coefficients over observations that fade.
// Residuals count relative to the observed value, so that one slow step among
// fast ones does not decide. Coordinate descent on the normal equations (Franc,
// Hlavac, Navara 2005), warm from the last solution: exact in the limit, and
// sound when features do not vary: then the first one gets the whole value.
template <size_t kFeatures>
class RecentFit final {
 public:
  using Row = std::array<double, kFeatures>;
  // REQUIRES: value > 0.
  void Observe(const Row& features, double value);
  const Row& coefficients() const { return solution_; }
  double observations() const { return observations_; }  // faded

 private:
  std::array<Row, kFeatures> gram_{};
  Row moment_{};
  Row solution_{};
  double observations_ = 0;
};

// Thread safety: none.
class StepCostEstimator final {
 public:
  void Observe(const StepShape& shape, absl::Duration elapsed);
  const StepCosts& costs() const { return costs_; }

 private:
  // Apart, so that a long stretch of decoding does not fade what is known of
  // prompts, and the other way round.
  RecentFit<4> rows_;     // step, rows, their contexts twice: of steps without prompts
  RecentFit<3> prompts_;  // tokens, step, attended: of the rest, less its rows
  StepCosts costs_;
};

}  // namespace baton::sched
