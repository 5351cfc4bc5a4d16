// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/gpu/gpu_model.h"
#include "common/model/gpu/memory_plan.h"
#include "common/model/model_facts.h"
#include "kernels/packing/kv_slices.h"

namespace baton::model::gpu {
namespace {

absl::StatusOr<kv::KvType> KvTypeOf(const LoadOptions& options) {
  if (options.precision == Precision::kExact) {
    return absl::InvalidArgumentError("precision exact runs on the CPU alone (--device cpu)");
  }
  const kv::KvType type = options.kv_type.value_or(kv::KvType::kBf16);
  if (type != kv::KvType::kF32) return type;
  return absl::InvalidArgumentError(
      "KV of type f32 is for the CPU alone; a GPU takes bf16 and int8");
}

// `library`: what computes the products of prompts; empty: our own kernels.
kv::KvLayout LayoutOf(const checkpoint::Checkpoint& checkpoint,
                      const checkpoint::ModelWeights& weights, kv::KvType type,
                      const Device& device, const std::string& library) {
  const checkpoint::ModelConfig& config = checkpoint.config();
  kv::KvLayout layout;
  layout.layers = config.layers;
  layout.kv_heads = config.kv_heads;
  layout.head_dim = config.head_dim;
  layout.type = type;
  layout.slice_layout = std::string(type == kv::KvType::kInt8 ? ::baton::kernels::kInt8SliceLayout
                                                              : ::baton::kernels::kBf16SliceLayout);
  layout.model_fingerprint = checkpoint.Fingerprint();
  layout.compute_id =
      absl::StrCat(device.table().name, " ", device.facts().architecture,
                   "/1 linear=", FormatNames(weights), library.empty() ? "" : " prompts=", library);
  layout.numerics_id = absl::StrCat(layout.compute_id, " kv=", std::string(KvTypeName(type)));
  return layout;
}

absl::Status CheckMemory(const checkpoint::ModelWeights& stored,
                         const checkpoint::ModelConfig& config, const kv::KvLayout& layout,
                         const LoadOptions& options, const Device& device) {
  MemoryPlan plan;
  plan.weights = WeightBytes(stored, config);
  plan.step_buffers =
      StepBytes(config, {.tokens = options.max_step_tokens, .sequences = options.max_sequences});
  if (!options.deterministic) {
    plan.step_buffers += VendorProducts::BytesFor(config, options.max_step_tokens);
  }
  if (options.plan_kv_blocks) {
    BATON_ASSIGN_OR_RETURN(const uint32_t blocks, options.plan_kv_blocks(layout, config.context));
    plan.kv_pool = uint64_t{blocks} * layout.BlockBytes();
  }
  return CheckFits(plan, device.facts());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadGpuModel(const checkpoint::Checkpoint& checkpoint,
                                                    const LoadOptions& options,
                                                    const DeviceName& name) {
  BATON_ASSIGN_OR_RETURN(const kv::KvType type, KvTypeOf(options));
  if (!options.head_decay.empty()) {
    return absl::InvalidArgumentError("a GPU computes no decay of heads (--head-decay)");
  }
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::Open(name));
  checkpoint::ModelConfig config = checkpoint.config();
  if (options.context_tokens > 0) config.context = options.context_tokens;
  if (options.max_step_tokens == 0) {
    return absl::InvalidArgumentError("max_step_tokens is 0; at least 1 is needed");
  }
  BATON_ASSIGN_OR_RETURN(checkpoint::ModelWeights stored, checkpoint.Weights());
  BATON_RETURN_IF_ERROR(ChooseWeights(options.weights, stored));
  kv::KvLayout layout = LayoutOf(checkpoint, stored, type, *device, "");
  BATON_RETURN_IF_ERROR(CheckMemory(stored, config, layout, options, *device));
  BATON_ASSIGN_OR_RETURN(Weights weights, LoadWeights(checkpoint, stored, config, *device));
  LogInfo("weights are on the GPU", {{"device", std::string(device->facts().name)},
                                     {"mib", weights.bytes >> 20},
                                     {"free_mib_before", device->facts().free_bytes >> 20}});
  std::unique_ptr<VendorProducts> vendor;
  if (!options.deterministic) {
    BATON_ASSIGN_OR_RETURN(vendor, VendorProducts::Open(*device, weights));
    layout = LayoutOf(checkpoint, stored, type, *device, vendor->library());
  }
  ModelInfo info = FactsOf(checkpoint, stored, config);
  info.weight_bytes = weights.bytes;
  info.windows = true;
  info.compute = absl::StrCat(device->table().name, " ", device->facts().architecture);
  return std::make_unique<GpuModel>(std::move(device), config, std::move(weights),
                                    std::move(vendor), std::move(info), std::move(layout),
                                    options.max_step_tokens);
}

}  // namespace baton::model::gpu
