// SPDX-License-Identifier: Apache-2.0
// What the engine needs of a model: run a step over paged KV blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/types.h"
#include "common/kv/arena.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"
#include "common/kv/window.h"
#include "common/sampling/logit_edits.h"
#include "common/sampling/params.h"

namespace baton::model {

// Facts about a loaded model that services announce.
struct ModelInfo {
  std::string name;          // such as "SmolLM2-135M-Instruct"
  std::string architecture;  // "chatglm", "llama", "fake"
  uint32_t vocabulary_size = 0;
  uint32_t context_tokens = 0;  // most tokens of one sequence
  // Ids [usable_vocabulary, vocabulary_size) are padding rows of the head: the
  // sampler never picks them.
  uint32_t usable_vocabulary = 0;
  std::vector<TokenId> end_tokens;
  uint64_t parameters = 0;
  uint64_t weight_bytes = 0;  // as held in memory
  std::string compute;        // such as "avx512-vnni-bf16 fast"
  uint32_t threads = 1;
  bool windows = false;  // computes slices with a limited window
};

// Memory of the device that a model lives on, in bytes. Total and free are of the
// whole device, whoever uses it.
struct DeviceMemory {
  uint64_t total_bytes = 0, free_bytes = 0;
  uint64_t weight_bytes = 0, kv_bytes = 0, step_bytes = 0;
};

enum class LogitRows : uint8_t { kNone, kLast, kAll };

// How the token behind a slice is chosen.
struct TokenChoice {
  const sampling::Params* params = nullptr;
  sampling::Position position;
};

// One sequence's part of a step: `tokens` at positions
// [first_position, first_position + tokens.size()).
struct Slice {
  std::span<const TokenId> tokens;
  uint32_t first_position = 0;
  // Block table from position 0; covers every position of the slice. With a
  // window, entries that none of its positions sees may be of other positions.
  std::span<const kv::BlockId> blocks;
  LogitRows logit_rows = LogitRows::kNone;
  // What its positions see; blocks that none of them sees are not read.
  kv::Window window = {};

  // In steps of a StepQueue alone (step_queue.h), with LogitRows::kLast: the token
  // behind it is wanted instead of the logits.
  const TokenChoice* choice = nullptr;
  // Likewise, of one token: it is the one that the step before chooses for the slice
  // which was its `follows`th of those with a choice; `tokens` counts for nothing.
  // `choice` is of the position behind it, its `tokens` without it.
  std::optional<uint32_t> follows = std::nullopt;
};

// Called when a layer's KV of the whole step stands in the arena; on the
// thread that called Forward. May be empty.
using LayerDone = std::function<void(uint32_t layer)>;

class StepQueue;

// A loaded model on a device.
//
// Thread safety: one Forward at a time; the rest is immutable.
// Determinism: a row's KV and logits have the same bits whatever slices,
// chunk sizes and thread counts it is computed with.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  // Layout of the blocks this model reads and writes.
  virtual const kv::KvLayout& kv_layout() const = 0;
  // Most tokens of one step, over all slices.
  virtual uint32_t max_step_tokens() const = 0;

  // The arena of all Forwards to come, before the first; for models that keep
  // blocks elsewhere (kv::BlockMirror). RESOURCE_EXHAUSTED: not so many.
  virtual absl::Status Attach(kv::KvArena& /*arena*/) { return absl::OkStatus(); }

  // As of a second ago, while steps run; nothing of a model in the host's memory.
  // Any thread.
  virtual std::optional<DeviceMemory> device_memory() const { return std::nullopt; }

  // Computes every slice: reads KV of earlier positions, writes that of the
  // slice's own, and puts one row of logits per wanted row, in slice order,
  // into `logits` [rows, vocabulary_size].
  // REQUIRES: slices are non-empty and of distinct sequences; their tokens are
  // below vocabulary_size; together at most max_step_tokens() tokens;
  // logits.size() == wanted rows x vocabulary_size.
  // INTERNAL: the device failed; the step's results are not to be used.
  virtual absl::Status Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                               std::span<float> logits, const LayerDone& layer_done) = 0;

  // For models that choose tokens themselves, and take a step before the one before is
  // read; null: this one does not. Forward is for times when the queue is empty.
  virtual StepQueue* queue() { return nullptr; }

  // Calls function(i) for every i below `count`, some of them at once where the
  // model has threads: for what is left to do with the rows of a step. On the
  // thread that calls Forward, between two of them; returns when all are done.
  virtual void ForEach(uint32_t count, absl::FunctionRef<void(uint32_t)> function) {
    for (uint32_t i = 0; i < count; ++i) function(i);
  }

  // No Forward follows at once: others may have the device meanwhile. On the
  // thread that calls Forward; a hint that may be left out.
  virtual void Idle() {}
};

}  // namespace baton::model
