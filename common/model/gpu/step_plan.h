// SPDX-License-Identifier: Apache-2.0
// A step as the GPU kernels take it: rows, block tables, attention's items.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/step.h"
#include "kernels/cuda/api/kernels.h"

namespace baton::model::gpu {

// Where every slice is one token whose logits are wanted, sizes are rounded up,
// so that few different ones occur: a captured graph serves them all. Padded
// rows have position -1; the kernels leave them alone or compute what nobody
// reads.
struct StepPlan {
  bool graph = false;
  std::vector<uint32_t> tokens;      // [rows]
  std::vector<int32_t> sources;      // [rows]: Slice::follows, or -1
  std::vector<int32_t> positions;    // [rows]
  std::vector<uint32_t> row_blocks;  // [rows]: where the row's KV goes
  // Slices of one token, then the others; their blocks, side by side.
  uint32_t table_stride = 0;
  std::vector<uint32_t> tables;
  std::vector<uint32_t> decode_rows;      // [decoding slices]: row of the step
  std::vector<int32_t> decode_positions;  // [decoding slices]
  uint32_t decode_segments = 0;           // most of any
  std::vector<::baton::gpu::PrefillItem> items;
  std::vector<uint32_t> logit_rows;  // rows of the step: those with a choice, others, padding
  std::vector<kv::BlockId> read, written, fresh;  // read: of what is there before

  size_t bytes() const;  // of all arrays on the device
};

// The next of 1, 2, 4, 8, 16, 24, 32, ...
uint32_t GraphRows(uint32_t rows);

StepPlan PlanGpuStep(const Step& step, uint32_t group);

}  // namespace baton::model::gpu
