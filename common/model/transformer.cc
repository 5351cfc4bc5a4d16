// SPDX-License-Identifier: Apache-2.0
#include "common/model/transformer.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/step.h"
#include "common/model/step_runner.h"

namespace baton::model {
namespace {

size_t CountTokens(std::span<const Slice> slices) {
  size_t tokens = 0;
  for (const Slice& slice : slices) tokens += slice.tokens.size();
  return tokens;
}

}  // namespace

Transformer::Transformer(const checkpoint::ModelConfig& config, ComputePlan plan,
                         PackedModel weights, ModelInfo info, uint32_t max_step_tokens,
                         std::unique_ptr<ThreadPool> pool, std::shared_ptr<cores::CoreShare> cores,
                         StepProfile* profile)
    : config_(config),
      plan_(std::move(plan)),
      weights_(std::move(weights)),
      info_(std::move(info)),
      max_step_tokens_(max_step_tokens),
      pool_(std::move(pool)),
      cores_(std::move(cores)),
      profile_(profile),
      attention_(config_, plan_.layout, *plan_.backend, *plan_.attention, plan_.decay,
                 pool_->threads()),
      work_(config_, weights_, max_step_tokens, pool_->threads()) {}

absl::Status Transformer::Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                                  std::span<float> logits, const LayerDone& layer_done) {
  if (cores_ != nullptr) pool_->Place(cores_->Begin());
  absl::Status status = RunStep(slices, arena, logits, layer_done);
  if (cores_ != nullptr) cores_->End();
  return status;
}

// On the CPUs of the step before.
void Transformer::ForEach(uint32_t count, absl::FunctionRef<void(uint32_t)> function) {
  std::atomic<uint32_t> next = 0;
  pool_->Run([&](uint32_t) {
    for (uint32_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) function(i);
  });
}

absl::Status Transformer::RunStep(std::span<const Slice> slices, const kv::KvArena& arena,
                                  std::span<float> logits, const LayerDone& layer_done) {
  // A step by rows may get further threads while it runs.
  const bool may_grow = cores_ != nullptr && IsByRows(CountTokens(slices), pool_->threads());
  const uint32_t threads = may_grow ? pool_->threads() : pool_->active();
  BATON_ASSIGN_OR_RETURN(const Step step, PlanStep(slices, config_, max_step_tokens_, threads));
  if (logits.size() != step.logit_rows.size() * config_.vocabulary) {
    return absl::InvalidArgumentError(
        absl::StrFormat("room for %u logits; %u rows of %u are wanted", logits.size(),
                        step.logit_rows.size(), config_.vocabulary));
  }
  attention_.Prepare(step);
  StepContext context{config_,    weights_,   *plan_.backend,
                      step,       arena,      logits,
                      layer_done, attention_, work_,
                      *pool_,     profile_,   std::vector<std::atomic<uint32_t>>(step.chunks)};
  if (!may_grow) {
    pool_->Run([&](uint32_t thread) { StepRunner(context, thread).Run(); });
    return absl::OkStatus();
  }
  const auto layers = static_cast<uint32_t>(weights_.layers.size());
  for (uint32_t layer = 0; layer < layers; ++layer) {
    if (layer > 0) pool_->Place(cores_->Again());
    pool_->Run([&](uint32_t thread) { StepRunner(context, thread).RunLayers(layer, layer + 1); });
  }
  return absl::OkStatus();
}

}  // namespace baton::model
