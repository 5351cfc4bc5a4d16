// SPDX-License-Identifier: Apache-2.0
// Steps that are started and collected. The stream is what keeps them apart: a step's
// arrays, results and chosen tokens are in memory that the next one gets in its order.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/gpu/gpu_model.h"
#include "common/sampling/sampler.h"

namespace baton::model::gpu {
namespace {

absl::StatusOr<TokenId> TokenOf(uint32_t chosen, bool constrained) {
  if (chosen == dev::kNotFinite) return sampling::NotFinite();
  if (chosen == dev::kAllBanned) return sampling::EveryTokenBanned(constrained);
  return chosen;
}

}  // namespace

absl::Status GpuModel::Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                               std::span<float> logits, const LayerDone& layer_done) {
  if (pending() > 0) return absl::FailedPreconditionError("steps of the queue are under way");
  BATON_RETURN_IF_ERROR(Start(slices, arena));
  BATON_ASSIGN_OR_RETURN(const StepResults results, Collect());
  if (logits.size() != results.logits.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("room for %u logits; %u rows of %u are wanted", logits.size(),
                        results.logits.size() / config_.vocabulary, config_.vocabulary));
  }
  std::copy(results.logits.begin(), results.logits.end(), logits.begin());
  for (uint32_t layer = 0; layer_done && layer < config_.layers; ++layer) layer_done(layer);
  return absl::OkStatus();
}

bool GpuModel::Chooses(const sampling::Params& params) const {
  return params.typical_p >= 1 && !params.logprobs;
}

absl::Status GpuModel::CheckSlices(std::span<const Slice> slices) const {
  if (blocks_ == nullptr) return absl::FailedPreconditionError("no arena is attached to the model");
  if (pending() == kMostSteps) {
    return absl::FailedPreconditionError(absl::StrCat(kMostSteps, " steps are started already"));
  }
  const size_t before = started_ == 0 ? 0 : steps_[(started_ - 1) % kMostSteps].constrained.size();
  for (const Slice& slice : slices) {
    if (slice.choice != nullptr && slice.logit_rows != LogitRows::kLast) {
      return absl::InvalidArgumentError("a slice with a choice wants other logits than its last");
    }
    if (slice.follows && (slice.tokens.size() != 1 || *slice.follows >= before)) {
      return absl::InvalidArgumentError(absl::StrCat("a slice of ", slice.tokens.size(),
                                                     " tokens follows choice ", *slice.follows,
                                                     "; the step before has ", before));
    }
  }
  return absl::OkStatus();
}

absl::Status GpuModel::Start(std::span<const Slice> slices, const kv::KvArena& arena) {
  const dev::DeviceTable& table = device_->table();
  table.bind_thread();
  BATON_RETURN_IF_ERROR(CheckSlices(slices));
  BATON_ASSIGN_OR_RETURN(const Step step, PlanStep(slices, config_, max_step_tokens_, 1));
  const StepPlan plan = PlanGpuStep(step, config_.heads / config_.kv_heads);
  const auto chosen = static_cast<size_t>(std::count_if(
      slices.begin(), slices.end(), [](const Slice& slice) { return slice.choice != nullptr; }));
  const bool all = plan.graph && chosen == step.rows.size();
  SamplePlan samples = PlanSampling(slices, info_.usable_vocabulary, all ? plan.tokens.size() : 0);
  Pending& pending = steps_[started_ % kMostSteps];
  BATON_RETURN_IF_ERROR(Prepare(plan, samples));
  BATON_RETURN_IF_ERROR(MakeRoom(pending, samples, step.logit_rows.size() - chosen));
  blocks_->BeforeStep(arena, plan.read, plan.written);
  const Arrays arrays = Upload(plan, samples);
  if (!plan.fresh.empty()) {
    table.zero_blocks({blocks_->data(), arrays.fresh, blocks_->block_bytes(),
                       blocks_->block_bytes(), static_cast<uint32_t>(plan.fresh.size())},
                      device_->stream());
  }
  RunAll(plan, samples, arrays);
  pending.constrained = std::move(samples.constrained);
  FetchResults(pending);
  ++started_;
  return absl::OkStatus();
}

absl::Status GpuModel::MakeRoom(Pending& pending, const SamplePlan& samples, size_t logit_rows) {
  pending.logit_rows = logit_rows;
  pending.failures = device_->failures();
  const size_t logits = logit_rows * config_.vocabulary * sizeof(float);
  const size_t tokens = samples.chosen() * sizeof(uint32_t);
  if (pending.logits.bytes() < logits) {
    BATON_ASSIGN_OR_RETURN(pending.logits, device_->AllocateHost(logits));
  }
  if (pending.tokens.bytes() < tokens) {
    BATON_ASSIGN_OR_RETURN(pending.tokens, device_->AllocateHost(tokens));
  }
  return absl::OkStatus();
}

// Rows of logits of choices come first, those of padding last.
void GpuModel::FetchResults(const Pending& pending) {
  const dev::DeviceTable& table = device_->table();
  const size_t chosen = pending.constrained.size();
  const size_t row_bytes = config_.vocabulary * sizeof(float);
  if (chosen > 0) {
    table.copy_out(pending.tokens.data(), chosen_.data(), chosen * sizeof(uint32_t),
                   device_->stream());
  }
  if (pending.logit_rows > 0) {
    table.copy_out(pending.logits.data(), logits_.data() + chosen * row_bytes,
                   pending.logit_rows * row_bytes, device_->stream());
  }
  table.record(pending.done, device_->stream());
}

absl::StatusOr<StepResults> GpuModel::Collect() {
  if (pending() == 0) return absl::FailedPreconditionError("no step is started");
  device_->table().bind_thread();
  const Pending& step = steps_[collected_ % kMostSteps];
  ++collected_;
  BATON_RETURN_IF_ERROR(device_->Wait(step.done));
  if (device_->failures() != step.failures) {
    return absl::InternalError("the GPU failed while the step was under way");
  }
  tokens_.clear();
  for (size_t i = 0; i < step.constrained.size(); ++i) {
    tokens_.push_back(TokenOf(step.tokens.as<uint32_t>()[i], step.constrained[i]));
  }
  LookAtMemory();
  return StepResults{{step.logits.as<float>(), step.logit_rows * config_.vocabulary}, tokens_};
}

}  // namespace baton::model::gpu
