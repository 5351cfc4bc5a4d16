// SPDX-License-Identifier: Apache-2.0
// From a router's Assign to a sequence for the engine: nothing is trusted.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/worker.pb.h"
#include "common/engine/engine.h"
#include "common/grammar/caches.h"
#include "common/worker/options.h"

namespace baton::worker {

// Bytes of a hand-off key.
inline constexpr size_t kHandoffKeyBytes = 16;

struct AssignLimits {
  WorkerRole role = WorkerRole::kPrefill;  // prefill workers take ROLE_PREFILL alone
  uint32_t vocabulary_size = 0;
  uint32_t context_tokens = 0;
  bool windows = true;        // sequences with a window are taken
  uint32_t draft_tokens = 0;  // of sequences that do not say how many
  // Null: sequences with a constraint are refused. Outlives all use.
  grammar::MatcherCache* constraints = nullptr;
};

// INVALID_ARGUMENT names the field, its limit and the value. `owner` is the
// router's stream; relative deadlines count from `now`.
absl::StatusOr<engine::SequenceSpec> SpecFromAssign(const v1::Assign& assign, uint64_t owner,
                                                    const AssignLimits& limits, absl::Time now);

}  // namespace baton::worker
