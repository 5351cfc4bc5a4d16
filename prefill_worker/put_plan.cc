// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/put_plan.h"

#include <algorithm>

namespace baton::prefill_worker {

std::vector<transport::PutRange> PlanPuts(const kv::KvLayout& layout, uint32_t block_begin,
                                          uint32_t block_end, size_t most_bytes) {
  const uint64_t slices = std::max<uint64_t>(1, most_bytes / layout.LayerBytes());
  const uint32_t most_blocks =
      static_cast<uint32_t>(std::min<uint64_t>(slices, block_end - block_begin));
  std::vector<transport::PutRange> ranges;
  if (most_blocks == 0) return ranges;
  const uint32_t most_layers =
      static_cast<uint32_t>(std::clamp<uint64_t>(slices / most_blocks, 1, layout.layers));
  for (uint32_t block = block_begin; block < block_end; block += most_blocks) {
    const uint32_t end = std::min(block + most_blocks, block_end);
    for (uint32_t layer = 0; layer < layout.layers; layer += most_layers) {
      ranges.push_back({.layer_begin = layer,
                        .layer_end = std::min(layer + most_layers, layout.layers),
                        .block_begin = block,
                        .block_end = end});
    }
  }
  return ranges;
}

}  // namespace baton::prefill_worker
