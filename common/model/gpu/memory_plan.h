// SPDX-License-Identifier: Apache-2.0
// What a model takes of a GPU's memory, known before any of it is allocated.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"
#include "kernels/cuda/api/device_table.h"

namespace baton::model::gpu {

namespace dev = ::baton::gpu;

// What LoadWeights puts on the GPU.
uint64_t WeightBytes(const checkpoint::ModelWeights& stored, const checkpoint::ModelConfig& config);

// The largest step: `tokens` in all, of at most `sequences` that each want one row
// of logits, or decode at the end of the context.
struct StepLimits {
  uint32_t tokens = 0, sequences = 0;
};
uint64_t StepBytes(const checkpoint::ModelConfig& config, const StepLimits& limits);

struct MemoryPlan {
  uint64_t weights = 0, kv_pool = 0, step_buffers = 0;
};
// For the driver's own needs: modules, graphs, larger steps than StepLimits says.
inline constexpr uint64_t kReserveBytes = uint64_t{256} << 20;

// RESOURCE_EXHAUSTED with the arithmetic and the flags that change it.
absl::Status CheckFits(const MemoryPlan& plan, const dev::DeviceFacts& facts);

}  // namespace baton::model::gpu
