// SPDX-License-Identifier: Apache-2.0
// Steps whose tokens the model chooses itself, and that it has before those before
// them are read: its device never waits for a host that looks at tokens.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/model/model.h"

namespace baton::model {

// Of one step, in the order of its slices.
struct StepResults {
  // [rows, vocabulary_size]: those that are wanted of slices without a choice.
  std::span<const float> logits;
  // Of each slice with one what sampling::SampleToken says: a token or its error.
  std::span<const absl::StatusOr<TokenId>> tokens;
};

// A model's own (Model::queue). Steps run in the order in which they are started, each
// on what those before have left in the blocks.
//
// Thread safety: as Model's.
class StepQueue {
 public:
  // That are started and not collected.
  static constexpr size_t kMostSteps = 2;

  virtual ~StepQueue() = default;

  // Whether tokens can be chosen by them; also with a mask, and with penalties.
  virtual bool Chooses(const sampling::Params& params) const = 0;

  // Starts a step and does not wait for it. All that slices refer to is read before it
  // returns, but for the KV in the blocks, which is read and written until the step is
  // collected: meanwhile nobody else may write them, or read what it writes.
  // REQUIRES: as Model::Forward; fewer than kMostSteps are started; a slice that follows
  // has a step before it, which chose a token for it.
  // Not OK: nothing was started.
  virtual absl::Status Start(std::span<const Slice> slices, const kv::KvArena& arena) = 0;

  // Waits for the oldest step. What it hands out is good until the next Start.
  // REQUIRES: one is started.
  // INTERNAL: the device failed; the step's results, and those of steps behind it, are
  // not to be used. It counts as collected.
  virtual absl::StatusOr<StepResults> Collect() = 0;
};

}  // namespace baton::model
