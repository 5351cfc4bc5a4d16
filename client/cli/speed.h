// SPDX-License-Identifier: Apache-2.0
// How fast a model runs in this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"

namespace baton::cli {

struct SpeedOptions {
  uint32_t prompt_tokens = 512;
  uint32_t decode_steps = 64;
  uint32_t decode_context = 16;  // tokens of each sequence before its first step
  std::vector<uint32_t> batches = {1, 4, 8};
  uint32_t repetitions = 3;  // the best counts: machines are shared
};

// Name ("prompt512", "decode4") and tokens per second.
using SpeedResult = std::pair<std::string, double>;

// The prompt: one sequence from position 0, logits of the last token. Decode:
// batch sequences behind decode_context tokens each, one token each per step with its
// logits, and their greedy choice; which tokens go in is fixed beforehand.
// `progress` hears each result as it comes; may be empty.
// INVALID_ARGUMENT when the work does not fit the model's context or step.
absl::StatusOr<std::vector<SpeedResult>> MeasureSpeed(
    model::Model* model, const SpeedOptions& options,
    const std::function<void(const SpeedResult&)>& progress);

}  // namespace baton::cli
