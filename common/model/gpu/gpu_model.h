// SPDX-License-Identifier: Apache-2.0
// The decoder block of ChatGLM2/3, Llama and Qwen2 on a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/model/gpu/block_store.h"
#include "common/model/gpu/device.h"
#include "common/model/gpu/memory_watch.h"
#include "common/model/gpu/step_plan.h"
#include "common/model/gpu/step_upload.h"
#include "common/model/gpu/vendor_products.h"
#include "common/model/gpu/weights.h"
#include "common/model/load.h"
#include "common/model/model.h"

namespace baton::model::gpu {

// As Transformer computes it; KV blocks live on the GPU (block_store.h).
class GpuModel final : public Model {
 public:
  // `vendor`: null, or what computes the products of steps of many rows.
  GpuModel(std::unique_ptr<Device> device, const checkpoint::ModelConfig& config, Weights weights,
           std::unique_ptr<VendorProducts> vendor, ModelInfo info, kv::KvLayout layout,
           uint32_t max_step_tokens);
  ~GpuModel() override;

  const ModelInfo& info() const override { return info_; }
  const kv::KvLayout& kv_layout() const override { return layout_; }
  uint32_t max_step_tokens() const override { return max_step_tokens_; }
  // FAILED_PRECONDITION from Forward without it.
  absl::Status Attach(kv::KvArena& arena) override;
  absl::Status Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const LayerDone& layer_done) override;
  std::optional<DeviceMemory> device_memory() const override { return memory_.Read(); }
  void Idle() override { LookAtMemory(); }
  // Captured so far.
  size_t graphs() const { return graphs_.size(); }

 private:
  // A step's arrays on the device.
  struct Arrays {
    const uint32_t *tokens, *row_blocks, *tables, *decode_rows, *fresh, *logit_rows;
    const int32_t *positions, *decode_positions;
    const dev::PrefillItem* items;
  };

  absl::Status Prepare(const StepPlan& plan);
  Arrays Upload(const StepPlan& plan);
  // All kernels of the step behind the zeroing of blocks.
  void RunStep(const StepPlan& plan, const Arrays& arrays);
  // The same by a graph of the plan's sizes, captured when they come up first.
  void ReplayStep(const StepPlan& plan, const Arrays& arrays);
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
  // By rows and segments; of the buffers as they are.
  std::map<std::pair<uint32_t, uint32_t>, dev::Graph> graphs_;
};

// From a checkpoint to a model on a device. Errors as LoadModel; UNAVAILABLE
// when the device is not there; INVALID_ARGUMENT for --precision exact, KV as
// f32, and sizes that the kernels do not take.
absl::StatusOr<std::unique_ptr<Model>> LoadGpuModel(const checkpoint::Checkpoint& checkpoint,
                                                    const LoadOptions& options,
                                                    const DeviceName& name);

}  // namespace baton::model::gpu
