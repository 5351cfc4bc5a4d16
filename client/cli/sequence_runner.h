// SPDX-License-Identifier: Apache-2.0
// Runs a model in this process, without an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/kv/arena.h"
#include "common/model/model.h"

namespace baton::cli {

// A fixed number of sequences of bounded length, each in blocks of its own.
// Positions that are computed again overwrite what was there.
//
// Thread safety: none.
class SequenceRunner final {
 public:
  // `model` must outlive the runner. INVALID_ARGUMENT when `tokens`, the most
  // of one sequence, is beyond the model's context.
  static absl::StatusOr<SequenceRunner> Create(model::Model* model, uint32_t sequences,
                                               uint32_t tokens);

  uint32_t vocabulary() const { return model_->info().vocabulary_size; }

  // Computes `tokens` from position 0 of a sequence on, in steps of the model's
  // greatest size; `last_row` [vocabulary] gets the logits after the last one,
  // or is empty when they are not wanted.
  absl::Status Prefill(uint32_t sequence, std::span<const TokenId> tokens,
                       std::span<float> last_row);

  // The logits after each token of `tokens`, the whole of sequence 0, in order.
  using Row = std::function<void(uint32_t position, std::span<const float> logits)>;
  absl::Status ForEachRow(std::span<const TokenId> tokens, const Row& row);

  // One token each for the first tokens.size() sequences, all at `position`;
  // `logits` is [tokens.size(), vocabulary].
  absl::Status Step(std::span<const TokenId> tokens, uint32_t position, std::span<float> logits);

 private:
  SequenceRunner(model::Model* model, kv::KvArena arena, uint32_t sequences,
                 uint32_t blocks_per_sequence);
  absl::Status Check(std::span<const TokenId> tokens, uint64_t end) const;
  std::span<const kv::BlockId> Blocks(uint32_t sequence) const;

  model::Model* model_;
  kv::KvArena arena_;
  uint32_t blocks_per_sequence_;
  std::vector<kv::BlockId> blocks_;  // [sequence][block]
};

}  // namespace baton::cli
