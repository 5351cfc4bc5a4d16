// SPDX-License-Identifier: Apache-2.0
// From a checkpoint to a model that runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/cores/core_share.h"
#include "common/kv/layout.h"
#include "common/model/head_decay.h"
#include "common/model/model.h"
#include "common/model/packed_cache.h"
#include "common/model/step_profile.h"
#include "common/model/weight_choice.h"

namespace baton::model {

enum class Precision : uint8_t {
  kExact,  // float32 over dequantized weights
  kFast,   // weights as stored, activations in 8 bits per 32 values or bf16
};

struct LoadOptions {
  Precision precision = Precision::kFast;
  WeightChoice weights = WeightChoice::kStored;  // float weights may become others
  std::optional<kv::KvType> kv_type;             // default: f32 for kExact, bf16 for kFast
  uint32_t threads = 0;                          // 0: affinity and cgroup quota decide
  std::string isa = "auto";                      // one of IsaNames()
  uint32_t max_step_tokens = 1024;
  // Sequences of one step, and blocks of the KV pool to come: what a GPU, whose memory
  // does not grow, is asked for before anything is loaded. No function: no pool.
  uint32_t max_sequences = 64;
  std::function<absl::StatusOr<uint32_t>(const kv::KvLayout& layout, uint32_t context_tokens)>
      plan_kv_blocks;
  // Most tokens of one sequence; 0: what the checkpoint says. More than that is
  // beyond what the model was trained for: for sequences with a window.
  uint32_t context_tokens = 0;
  // Off: a GPU may compute prompts by its vendor's matrix library; a row's bits
  // then depend on how many rows its step has. CPUs have no such kernels.
  bool deterministic = true;
  // Heads that weigh old tokens less; part of numerics_id.
  std::vector<HeadDecay> head_decay;
  // Divides the CPUs with other workers, step by step; null: this process
  // alone uses them.
  std::shared_ptr<cores::CoreShare> cores;
  // Filled by every Forward; outlives the model. Null: nothing is timed.
  StepProfile* profile = nullptr;
  PackedCacheOptions cache;  // no cache unless a folder is given
};

// "auto", then the backends that are built in, best first; not all may run here.
std::vector<std::string> IsaNames();

// The model copies all it needs: neither the checkpoint nor its files have to
// outlive this call.
// RESOURCE_EXHAUSTED with the arithmetic when the weights do not fit into
// memory; INVALID_ARGUMENT for an isa that this CPU lacks or does not exist, for a
// choice of weights that the checkpoint's types rule out, and for a decay of heads
// that the model does not have.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const checkpoint::Checkpoint& checkpoint,
                                                 const LoadOptions& options);

// KV layout that LoadModel would use; needs no weights.
absl::StatusOr<kv::KvLayout> PlanKvLayout(const checkpoint::Checkpoint& checkpoint,
                                          const LoadOptions& options);

// "auto" (nothing) or a name of ParseKvType: what --kv-dtype says.
absl::StatusOr<std::optional<kv::KvType>> ParseKvChoice(const std::string& name);

// Threads that affinity and cgroup quota allow; at least 1.
uint32_t UsableThreads();

}  // namespace baton::model
