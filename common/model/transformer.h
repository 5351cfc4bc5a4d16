// SPDX-License-Identifier: Apache-2.0
// The decoder block of ChatGLM2/3 and Llama on a kernel backend.
#pragma once

#include <cstdint>
#include <memory>

#include "common/checkpoint/checkpoint.h"
#include "common/cores/core_share.h"
#include "common/model/attention.h"
#include "common/model/compute_plan.h"
#include "common/model/model.h"
#include "common/model/packed_model.h"
#include "common/model/step_profile.h"
#include "common/model/thread_pool.h"
#include "common/model/workspace.h"

namespace baton::model {

// x = embedding[token]; per layer: x += o(attention(rope(qkv(norm(x)))));
// x += down(swiglu(gate(norm(x)), up(norm(x)))); logits = head(norm(x)).
class Transformer final : public Model {
 public:
  // `cores` says before every step where to run it, and before every layer of a
  // step by rows where to go on; null: on all threads of
  // `pool`, wherever the system puts them. `profile`: see LoadOptions.
  Transformer(const checkpoint::ModelConfig& config, ComputePlan plan, PackedModel weights,
              ModelInfo info, uint32_t max_step_tokens, std::unique_ptr<ThreadPool> pool,
              std::shared_ptr<cores::CoreShare> cores, StepProfile* profile = nullptr);

  const ModelInfo& info() const override { return info_; }
  const kv::KvLayout& kv_layout() const override { return plan_.layout; }
  uint32_t max_step_tokens() const override { return max_step_tokens_; }
  absl::Status Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const LayerDone& layer_done) override;
  void ForEach(uint32_t count, absl::FunctionRef<void(uint32_t)> function) override;
  void Idle() override {
    if (cores_ != nullptr) cores_->Release();
  }

 private:
  absl::Status RunStep(std::span<const Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const LayerDone& layer_done);

  const checkpoint::ModelConfig config_;
  const ComputePlan plan_;
  const PackedModel weights_;
  const ModelInfo info_;
  const uint32_t max_step_tokens_;
  std::unique_ptr<ThreadPool> pool_;
  const std::shared_ptr<cores::CoreShare> cores_;
  StepProfile* const profile_;
  Attention attention_;
  Workspace work_;
};

}  // namespace baton::model
