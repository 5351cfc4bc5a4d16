// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/memory_plan.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "absl/strings/str_format.h"
#include "common/model/convert_rows.h"
#include "common/model/packed_matrix.h"
#include "kernels/cuda/api/pack.h"

namespace baton::model::gpu {
namespace {

using checkpoint::LinearView;
using checkpoint::TensorType;
using checkpoint::TensorView;

dev::WeightFormat FormatOf(const LinearView& view) {
  return dev::FormatOf(ToWeightType(PackedType(view)));
}

// Of one matrix whose rows are those of all views.
uint64_t MatrixBytes(std::initializer_list<const LinearView*> views) {
  const LinearView& first = **views.begin();
  uint32_t outputs = 0;
  bool bias = false;
  for (const LinearView* view : views) {
    outputs += view->rows;
    bias = bias || view->bias != nullptr;
  }
  const auto inputs = static_cast<uint32_t>(first.tensor->shape[1]);
  return dev::WeightBytes(FormatOf(first), outputs, inputs) + (bias ? outputs * sizeof(float) : 0);
}

uint64_t VectorBytes(const TensorView& tensor) { return tensor.shape[0] * sizeof(float); }

uint64_t TableBytes(const TensorView& tensor) {
  const size_t each = tensor.type == TensorType::kF32 ? sizeof(float) : sizeof(uint16_t);
  return tensor.shape[0] * tensor.shape[1] * each;
}

uint64_t QkvBytes(const checkpoint::LayerWeights& layer) {
  if (FormatOf(layer.q) == FormatOf(layer.k) && FormatOf(layer.q) == FormatOf(layer.v)) {
    return MatrixBytes({&layer.q, &layer.k, &layer.v});
  }
  return MatrixBytes({&layer.q}) + MatrixBytes({&layer.k}) + MatrixBytes({&layer.v});
}

double Gib(uint64_t bytes) { return static_cast<double>(bytes) / (uint64_t{1} << 30); }

}  // namespace

uint64_t WeightBytes(const checkpoint::ModelWeights& stored,
                     const checkpoint::ModelConfig& config) {
  uint64_t bytes =
      TableBytes(*stored.embedding) + VectorBytes(*stored.final_norm) + MatrixBytes({&stored.head});
  for (const checkpoint::LayerWeights& layer : stored.layers) {
    bytes += VectorBytes(*layer.attention_norm) + VectorBytes(*layer.ffn_norm) + QkvBytes(layer) +
             MatrixBytes({&layer.attention_out}) + MatrixBytes({&layer.gate, &layer.up}) +
             MatrixBytes({&layer.down});
  }
  const uint64_t angles = uint64_t{config.context} * (config.rotary_dims / 2);
  return bytes + 2 * angles * sizeof(float);  // cosines and sines
}

uint64_t StepBytes(const checkpoint::ModelConfig& config, const StepLimits& limits) {
  const uint64_t rows = limits.tokens, sequences = std::min(limits.sequences, limits.tokens);
  const uint32_t heads = config.heads * config.head_dim;
  const uint64_t segments =
      std::bit_ceil((uint64_t{config.context} + dev::kSegmentTokens - 1) / dev::kSegmentTokens);
  const uint64_t parts = sequences * config.heads * segments;
  const uint64_t floats =
      rows * (config.hidden + heads + 2ull * config.kv_heads * config.head_dim) +
      parts * (config.head_dim + 2) + sequences * config.vocabulary;
  const uint64_t activations = dev::ActivationBytes(limits.tokens, config.hidden) +
                               dev::ActivationBytes(limits.tokens, heads) +
                               dev::ActivationBytes(limits.tokens, config.ffn);
  return floats * sizeof(float) + rows * heads * sizeof(uint16_t) + activations;
}

absl::Status CheckFits(const MemoryPlan& plan, const dev::DeviceFacts& facts) {
  const uint64_t needed = plan.weights + plan.kv_pool + plan.step_buffers + kReserveBytes;
  if (needed <= facts.free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%.2f GiB of GPU memory are needed (weights %.2f + KV pool %.2f + step buffers %.2f + "
      "reserve %.2f) and %s has %.2f of %.2f GiB free; smaller: --kv-memory or --kv-tokens, "
      "--weights int8 or int4, --max-sequences and --chunk-tokens; --device cpu runs on the CPU",
      Gib(needed), Gib(plan.weights), Gib(plan.kv_pool), Gib(plan.step_buffers), Gib(kReserveBytes),
      facts.name, Gib(facts.free_bytes), Gib(facts.total_bytes)));
}

}  // namespace baton::model::gpu
