// SPDX-License-Identifier: Apache-2.0
// A step as the GPU kernels take it: rows, block tables, attention's items.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/step.h"
#include "kernels/cuda/api/kernels.h"

namespace baton::model::gpu {

struct StepPlan {
  std::vector<uint32_t> tokens;      // [rows]
  std::vector<int32_t> positions;    // [rows]
  std::vector<uint32_t> row_blocks;  // [rows]: where the row's KV goes
  // Slices of one token, then the others; their blocks, side by side.
  uint32_t table_stride = 0;
  std::vector<uint32_t> tables;
  std::vector<uint32_t> decode_rows;      // [decoding slices]: row of the step
  std::vector<int32_t> decode_positions;  // [decoding slices]
  uint32_t decode_segments = 0;           // most of any
  std::vector<::baton::gpu::PrefillItem> items;
  std::vector<kv::BlockId> read, written, fresh;

  size_t bytes() const;  // of all arrays on the device
};

StepPlan PlanGpuStep(const Step& step, uint32_t group);

}  // namespace baton::model::gpu
