// SPDX-License-Identifier: Apache-2.0
// A model's weights in GPU memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/gpu/device.h"

namespace baton::model::gpu {

struct Matrix {
  dev::WeightFormat format = dev::WeightFormat::kBf16;
  uint32_t outputs = 0, inputs = 0;
  Buffer data;
  Buffer bias;          // float32 [outputs]; empty: none
  uint32_t column = 0;  // of its outputs in a row of results
};

struct Layer {
  Buffer attention_norm, ffn_norm;  // float32 [hidden]
  // Results side by side: q, k, v. One matrix where their types allow it.
  std::vector<Matrix> qkv;
  Matrix attention_out, gate_up, down;
};

struct Weights {
  dev::TableType table_type = dev::TableType::kF32;
  Buffer embedding;
  std::vector<Layer> layers;
  Buffer final_norm;
  Matrix head;
  Buffer angles;          // [context, rotary / 2] cosines, then sines
  uint64_t sines_at = 0;  // in floats
  uint64_t bytes = 0;     // of all
};

// Sends everything as stored through a ring of pinned memory (48 MiB, or 48 rows of
// the widest matrix where those take more) and packs it on the device. INVALID_ARGUMENT names a
// size that the kernels do not take; RESOURCE_EXHAUSTED with the arithmetic when it does not fit.
absl::StatusOr<Weights> LoadWeights(const checkpoint::Checkpoint& checkpoint,
                                    const checkpoint::ModelWeights& stored,
                                    const checkpoint::ModelConfig& config, const Device& device);

// Names of the weight formats in use, for compute_id.
std::string FormatNames(const checkpoint::ModelWeights& stored);

}  // namespace baton::model::gpu
