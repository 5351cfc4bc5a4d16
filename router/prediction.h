// SPDX-License-Identifier: Apache-2.0
// How long a request would take on either path, by what workers have measured.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/sched/step_costs.h"
#include "router/worker_directory.h"

namespace baton::router {

// Of a step; workers cut longer prompts. Their --chunk-tokens may differ, which
// costs little here: the price of a step is small beside that of its tokens.
inline constexpr uint32_t kChunkTokens = 512;

sched::StepCosts CostsOf(const Worker& worker);

// What a prompt's `tokens` after `cached` others take on `worker` alone, once
// it has come to it; nullopt when it has not measured any yet.
std::optional<absl::Duration> PromptTime(const Worker& worker, uint64_t cached, uint64_t tokens);
// Until it comes to it.
absl::Duration QueueTime(const Worker& worker);

// Where a prompt of `prompt_tokens` may be computed, and how much of it there.
struct Ways {
  const Worker* prefill = nullptr;
  uint64_t prefill_tokens = 0;  // those that its cache lacks
  const Worker* decode = nullptr;
  uint64_t local_tokens = 0;  // likewise
  uint64_t prompt_tokens = 0;
  absl::Duration handoff;  // from the last chunk to the decode worker's first step
};

// From now to the second token, which a hand-off has to come before.
struct Prediction {
  absl::Duration split, local;
  // The most by which a step of the local prompt would hold up the streams that
  // the decode worker runs or takes up meanwhile.
  absl::Duration stall;
};

// A decode worker that has computed no prompt yet is taken to be as fast as the
// prefill worker: they run the same kernels. nullopt: nothing was measured.
std::optional<Prediction> Predict(const Ways& ways);

}  // namespace baton::router
