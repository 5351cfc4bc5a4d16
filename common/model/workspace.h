// SPDX-License-Identifier: Apache-2.0
// The activations of one step.
#pragma once

#include <cstdint>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/model/aligned_buffer.h"
#include "common/model/packed_model.h"
#include "common/model/prepared_rows.h"

namespace baton::model {

// Formats that a layer's matrices read, by their common input.
struct LayerFormats {
  FormatSet attention_in, attention_out, ffn_in, ffn_out;
};

struct Workspace {
  Workspace(const checkpoint::ModelConfig& config, const PackedModel& model, uint32_t max_rows,
            uint32_t threads);

  uint64_t bytes() const;

  uint32_t tiles;         // that max_rows rows need
  uint32_t hidden_width;  // of a row of x: hidden rounded up to a cache line
  AlignedBuffer x;        // [max_rows, hidden_width], the residual stream
  AlignedBuffer q, k, v;  // [max_rows, heads (kv heads) x head size]; q becomes the context
  std::vector<AlignedBuffer> normalized;  // [threads]: a tile, [kTileRows, hidden_width]

  std::vector<LayerFormats> layer_formats;
  FormatSet head_format;
  // `tiles` shared tiles, then one per thread: with one tile in all, each
  // thread prepares its own copy, which is cheaper than to wait for another's.
  PreparedRows attention_in, attention_out, ffn_in, ffn_out, head_in;
};

}  // namespace baton::model
