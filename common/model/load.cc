// SPDX-License-Identifier: Apache-2.0
#include "common/model/load.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/kv/memory_budget.h"
#include "common/model/compute_plan.h"
#include "common/model/model_facts.h"
#include "common/model/packed_model.h"
#include "common/model/thread_pool.h"
#include "common/model/transformer.h"

namespace baton::model {
namespace {

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Float32 rows of a step: residual, q, k, v, and the prepared inputs of the
// matrices, none of which is wider than float32.
uint64_t StepBytes(const checkpoint::ModelConfig& config, uint32_t max_step_tokens) {
  const uint64_t heads = uint64_t{config.heads} * config.head_dim;
  const uint64_t kv_heads = uint64_t{config.kv_heads} * config.head_dim;
  return sizeof(float) * max_step_tokens *
         (4 * uint64_t{config.hidden} + 2 * heads + 2 * kv_heads + config.ffn);
}

absl::Status CheckMemory(const checkpoint::ModelConfig& config, const ComputePlan& plan,
                         uint64_t weight_bytes, uint32_t max_step_tokens) {
  const kv::MemoryBudget budget = kv::ReadMemoryBudget();
  const uint64_t step_bytes = StepBytes(config, max_step_tokens);
  const uint64_t rope_bytes =
      sizeof(float) * uint64_t{config.context} * config.rotary_dims;  // cos and sin
  if (weight_bytes + step_bytes + rope_bytes <= budget.available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the model needs %.1f MiB (weights as %s %.1f MiB + activations of %u tokens %.1f MiB + "
      "rotary angles %.1f MiB), but %.1f MiB are available (%s); use a smaller model or fewer "
      "bits per weight (--weights int8 or int4 for F32, F16 and BF16 checkpoints)%s",
      Mib(weight_bytes + step_bytes + rope_bytes), std::string(plan.backend->name()),
      Mib(weight_bytes), max_step_tokens, Mib(step_bytes), Mib(rope_bytes),
      Mib(budget.available_bytes), budget.source,
      plan.precision == kernels::Precision::kExact ? ", or precision fast" : ""));
}

ModelInfo InfoOf(const checkpoint::Checkpoint& checkpoint, const checkpoint::ModelConfig& config,
                 const ComputePlan& plan, const checkpoint::ModelWeights& weights,
                 WeightChoice choice, uint64_t weight_bytes, uint32_t threads) {
  const std::string chosen = choice == WeightChoice::kStored
                                 ? ""
                                 : absl::StrCat(" ", std::string(WeightChoiceName(choice)));
  ModelInfo info = FactsOf(checkpoint, weights, config);
  info.weight_bytes = weight_bytes;
  info.compute =
      absl::StrCat(std::string(plan.backend->name()),
                   plan.precision == kernels::Precision::kExact ? " exact" : " fast", chosen);
  info.threads = threads;
  info.windows = true;
  return info;
}

}  // namespace

std::vector<std::string> IsaNames() {
  std::vector<std::string> names = {"auto"};
  for (const kernels::Backend* backend : kernels::Backends()) names.emplace_back(backend->name());
  return names;
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const checkpoint::Checkpoint& checkpoint,
                                                 const LoadOptions& options) {
  checkpoint::ModelConfig config = checkpoint.config();
  if (options.context_tokens > 0) config.context = options.context_tokens;
  BATON_ASSIGN_OR_RETURN(checkpoint::ModelWeights weights, checkpoint.Weights());
  BATON_RETURN_IF_ERROR(ChooseWeights(options.weights, weights));
  BATON_ASSIGN_OR_RETURN(ComputePlan plan, PlanCompute(checkpoint, weights, options));
  if (options.max_step_tokens == 0) {
    return absl::InvalidArgumentError("max_step_tokens is 0; at least 1 is needed");
  }
  const uint64_t bytes = PackedModelBytes(weights, *plan.backend, plan.precision);
  BATON_RETURN_IF_ERROR(CheckMemory(config, plan, bytes, options.max_step_tokens));

  const uint32_t usable = UsableThreads();
  const uint32_t threads = options.threads == 0 ? usable : std::min(usable, options.threads);
  if (threads < options.threads) {
    LogWarning("fewer threads than asked for: affinity or cgroup quota allow no more",
               {{"asked", options.threads}, {"threads", threads}});
  }
  auto pool = std::make_unique<ThreadPool>(threads);
  PackedModel packed =
      PackModel(checkpoint, weights, *plan.backend, plan.precision, options.cache, *pool);
  ModelInfo info =
      InfoOf(checkpoint, config, plan, weights, options.weights, packed.bytes, threads);
  return std::make_unique<Transformer>(config, std::move(plan), std::move(packed), std::move(info),
                                       options.max_step_tokens, std::move(pool), options.cores,
                                       options.profile);
}

absl::StatusOr<std::optional<kv::KvType>> ParseKvChoice(const std::string& name) {
  if (name == "auto") return std::nullopt;
  BATON_ASSIGN_OR_RETURN(const kv::KvType type, kv::ParseKvType(name));
  return type;
}

absl::StatusOr<kv::KvLayout> PlanKvLayout(const checkpoint::Checkpoint& checkpoint,
                                          const LoadOptions& options) {
  BATON_ASSIGN_OR_RETURN(checkpoint::ModelWeights weights, checkpoint.Weights());
  BATON_RETURN_IF_ERROR(ChooseWeights(options.weights, weights));
  BATON_ASSIGN_OR_RETURN(ComputePlan plan, PlanCompute(checkpoint, weights, options));
  return std::move(plan.layout);
}

}  // namespace baton::model
