// SPDX-License-Identifier: Apache-2.0
// The decoder block of ChatGLM2/3, Llama and Qwen2 on a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/model/gpu/block_store.h"
#include "common/model/gpu/device.h"
#include "common/model/gpu/memory_watch.h"
#include "common/model/gpu/sample_plan.h"
#include "common/model/gpu/step_plan.h"
#include "common/model/gpu/step_upload.h"
#include "common/model/gpu/vendor_products.h"
#include "common/model/gpu/weights.h"
#include "common/model/load.h"
#include "common/model/model.h"
#include "common/model/step_queue.h"

namespace baton::model::gpu {

// As Transformer computes it; KV blocks live on the GPU (block_store.h). Tokens are chosen
// there, too, where the kernel can, and stay there for the step behind.
class GpuModel final : public Model, private StepQueue {
 public:
  // `vendor`: null, or what computes the products of steps of many rows.
  GpuModel(std::unique_ptr<Device> device, const checkpoint::ModelConfig& config, Weights weights,
           std::unique_ptr<VendorProducts> vendor, ModelInfo info, kv::KvLayout layout,
           uint32_t max_step_tokens);
  ~GpuModel() override;

  const ModelInfo& info() const override { return info_; }
  const kv::KvLayout& kv_layout() const override { return layout_; }
  uint32_t max_step_tokens() const override { return max_step_tokens_; }
  // FAILED_PRECONDITION from Forward and Start without it.
  absl::Status Attach(kv::KvArena& arena) override;
  StepQueue* queue() override { return this; }
  absl::Status Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const LayerDone& layer_done) override;
  std::optional<DeviceMemory> device_memory() const override { return memory_.Read(); }
  void Idle() override { LookAtMemory(); }
  // Captured so far.
  size_t graphs() const { return graphs_.size(); }

 private:
  // A step's arrays on the device.
  struct Arrays {
    const uint32_t *tokens, *row_blocks, *tables, *decode_rows, *fresh, *logit_rows, *lists;
    const int32_t *sources, *positions, *decode_positions;
    const dev::PrefillItem* items;
    const dev::SampleRow* samples;
  };
  // A step that was started, and what comes back of it.
  struct Pending {
    dev::Event done = nullptr;
    Buffer logits, tokens;  // pinned
    size_t logit_rows = 0;
    std::vector<bool> constrained;  // of each choice
    uint64_t failures = 0;          // of the device, before it
  };

  // step_queue.cc
  bool Chooses(const sampling::Params& params) const override;
  absl::Status Start(std::span<const Slice> slices, const kv::KvArena& arena) override;
  absl::StatusOr<StepResults> Collect() override;
  absl::Status CheckSlices(std::span<const Slice> slices) const;
  absl::Status MakeRoom(Pending& pending, const SamplePlan& samples, size_t logit_rows);
  // Starts the copies of what is wanted of a step, behind it.
  void FetchResults(const Pending& pending);
  size_t pending() const { return started_ - collected_; }

  absl::Status Prepare(const StepPlan& plan, const SamplePlan& samples);
  Arrays Upload(const StepPlan& plan, const SamplePlan& samples);
  // All kernels of the step behind the zeroing of blocks.
  void RunAll(const StepPlan& plan, const SamplePlan& samples, const Arrays& arrays);
  // Those of the model itself.
  void RunStep(const StepPlan& plan, const Arrays& arrays);
  void Choose(const Arrays& arrays, size_t rows);
  // The same by a graph of the plan's sizes, captured when they come up first.
  void ReplayStep(const StepPlan& plan, const Arrays& arrays, bool chooses);
  void DropGraphs();
  void RunLayer(const StepPlan& plan, const Arrays& arrays, uint32_t rows, uint32_t layer);
  void Attend(const StepPlan& plan, const Arrays& arrays, uint32_t rows, const dev::KvPool& pool);
  // Whether the vendor's library computes the step's products. Its rows are plain.
  bool ByVendor(const StepPlan& plan) const {
    return vendor_ != nullptr && !plan.graph && vendor_->Serves(plan.tokens.size());
  }
  void Norm(const Buffer& weight, const uint32_t* source, uint32_t rows, bool plain = false);
  void Multiply(const Matrix& matrix, dev::Epilogue epilogue, const void* in, void* out,
                uint32_t stride, uint32_t rows, bool vendor = false);
  dev::KvPool PoolOf(uint32_t layer) const;
  void LookAtMemory();
  // Makes `buffer` hold at least `bytes`.
  absl::Status Grow(Buffer& buffer, size_t bytes, const std::string& purpose);

  const std::unique_ptr<Device> device_;
  const checkpoint::ModelConfig config_;
  const Weights weights_;
  const std::unique_ptr<VendorProducts> vendor_;
  const ModelInfo info_;
  const kv::KvLayout layout_;
  const uint32_t max_step_tokens_;
  MemoryWatch memory_;
  uint64_t step_bytes_ = 0;  // of the buffers below, but for the upload's
  std::unique_ptr<BlockStore> blocks_;
  StepUpload upload_;
  // float32: the residual, q k v side by side, attention's parts, logits.
  // Activations (fragments.h): after a norm, the heads' context, after SwiGLU.
  Buffer x_, qkv_, partial_out_, partial_sums_, logits_;
  Buffer q_, normed_, context_, ffn_;
  // Of the rows with a choice: working memory, and what was chosen.
  Buffer weights_of_tokens_, chosen_;
  // By rows, segments and whether all their tokens are chosen; of the buffers as they are.
  std::map<std::tuple<uint32_t, uint32_t, bool>, dev::Graph> graphs_;

  std::array<Pending, kMostSteps> steps_;  // in turn
  size_t started_ = 0, collected_ = 0;
  std::vector<absl::StatusOr<TokenId>> tokens_;  // of the step that was collected last
};

// From a checkpoint to a model on a device. Errors as LoadModel; UNAVAILABLE
// when the device is not there; INVALID_ARGUMENT for --precision exact, KV as
// f32, and sizes that the kernels do not take.
absl::StatusOr<std::unique_ptr<Model>> LoadGpuModel(const checkpoint::Checkpoint& checkpoint,
                                                    const LoadOptions& options,
                                                    const DeviceName& name);

}  // namespace baton::model::gpu
