// SPDX-License-Identifier: Apache-2.0
// A model without weights whose text depends on every byte of KV it should
// read: for exact and fast tests of everything around a model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/types.h"
#include "common/kv/layout.h"
#include "common/model/model.h"

namespace baton::model {

struct FakeOptions {
  uint32_t layers = 2;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;  // a multiple of 16
  kv::KvType kv_type = kv::KvType::kF32;
  uint32_t vocabulary_size = 1000;
  uint32_t usable_vocabulary = 0;  // 0: all; padding rows get the highest logits
  uint32_t context_tokens = 8192;
  uint32_t max_step_tokens = 1024;
  std::vector<TokenId> end_tokens = {2};
  uint64_t seed = 1;  // other seeds, other text
  bool windows = true;
  bool queues = false;  // has a StepQueue (fake_queue.h)

  // Time that a step takes: for tests of faults, cancellation and load.
  absl::Duration delay_per_step = absl::ZeroDuration();
  absl::Duration delay_per_token = absl::ZeroDuration();

  // When not empty: the token after t is script[t], whatever the KV holds.
  std::vector<TokenId> script = {};
  // A row whose input is this token gets NaN logits.
  std::optional<TokenId> nan_token = std::nullopt;
  // A step with this token among its inputs fails with INTERNAL.
  std::optional<TokenId> fail_token = std::nullopt;
};

// Every position's KV is filled with hashes chained from position to position
// per layer, each over the token, the position, the layer and what the
// previous position's KV holds. A row of logits is a function of all KV bytes
// that its position sees as they stand in the blocks, so a lost, stale, swapped or
// foreign block changes every token after it.
// INVALID_ARGUMENT, naming field and value, for options that make no model.
absl::StatusOr<std::unique_ptr<Model>> MakeFakeModel(const FakeOptions& options);

// The first `count` greedy tokens after `prompt`, computed without blocks. End
// tokens do not stop it. Not for options with a script, NaN or failing token.
std::vector<TokenId> FakeReference(const FakeOptions& options, std::span<const TokenId> prompt,
                                   uint32_t count, const kv::Window& window = {});

// The row of logits after `tokens`, computed without blocks. Likewise.
std::vector<float> FakeLogits(const FakeOptions& options, std::span<const TokenId> tokens,
                              const kv::Window& window = {});

}  // namespace baton::model
