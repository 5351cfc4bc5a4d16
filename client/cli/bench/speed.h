// SPDX-License-Identifier: Apache-2.0
// How fast a model runs in this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/model_work.h"
#include "common/model/model.h"
#include "common/model/step_profile.h"

namespace baton::cli {

struct SpeedOptions {
  uint32_t prompt_tokens = 512;
  uint32_t decode_steps = 64;
  uint32_t decode_context = 16;  // tokens of each sequence before its first step
  std::vector<uint32_t> batches = {1, 4, 8};
  uint32_t repetitions = 3;               // the best counts: machines are shared
  model::StepProfile* profile = nullptr;  // that the model fills, or null
};

struct SpeedResult {
  std::string name;  // "prompt512", "decode4"
  double tokens_per_second = 0;
  uint32_t tokens = 0;  // that `work` computes: a whole prompt, or one step
  StepWork work = {};
  model::StepProfile profile = {};  // of the best repetition; empty without one
};

// The prompt: one sequence from position 0, logits of the last token. Decode:
// batch sequences behind decode_context tokens each, one token each per step with its
// logits, and their greedy choice; which tokens go in is fixed beforehand.
// `progress` hears each result as it comes; may be empty.
// INVALID_ARGUMENT when the work does not fit the model's context or step.
absl::StatusOr<std::vector<SpeedResult>> MeasureSpeed(
    model::Model* model, const SpeedOptions& options,
    const std::function<void(const SpeedResult&)>& progress);

}  // namespace baton::cli
