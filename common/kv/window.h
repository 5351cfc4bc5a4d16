// SPDX-License-Identifier: Apache-2.0
// Attention over a window of the latest tokens and the first ones (attention
// sinks: Xiao et al., 2023, "Efficient Streaming Language Models with
// Attention Sinks"), in a fixed set of KV blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"

namespace baton::kv {

// Which earlier tokens a position sees: the first `sinks`, those of its own
// block up to itself, and the `tokens` before its block. Whole blocks, so that
// a block is either read or free, and no kernel needs a second mask. Positions
// stay absolute.
struct Window {
  uint32_t tokens = 0;  // a multiple of kBlockTokens; 0: all tokens are seen
  uint32_t sinks = 0;   // a multiple of kBlockTokens

  bool limited() const { return tokens > 0; }
  uint32_t sink_blocks() const { return sinks / kBlockTokens; }
  // First block that `position` sees beside the sinks.
  uint32_t FirstBlock(uint32_t position) const {
    const uint32_t block = position / kBlockTokens, before = tokens / kBlockTokens;
    return limited() && block > before ? block - before : 0;
  }
  // Positions whose blocks a sequence of `tokens` holds at most while it decodes.
  uint64_t Held(uint64_t most) const {
    return limited() ? std::min<uint64_t>(most, uint64_t{sinks} + tokens + kBlockTokens) : most;
  }
  bool SeesBlock(uint32_t position, uint32_t block) const {
    return block <= position / kBlockTokens &&
           (block < sink_blocks() || block >= FirstBlock(position));
  }
};

// INVALID_ARGUMENT names the field that is no multiple of kBlockTokens, or
// sinks without a window.
absl::Status CheckWindow(const Window& window);

// Blocks that a sequence of any length needs while at most `chunk` tokens are
// computed at a time. REQUIRES: window.limited(), chunk > 0.
uint64_t BlocksForWindow(const Window& window, uint32_t chunk);

// Most blocks that a sequence of `positions` holds at once when blocks are given
// back as no position to come sees them, and the first `prompt` positions get
// theirs together.
uint64_t MostBlocks(const Window& window, uint64_t prompt, uint64_t positions);

// The block table of a sequence with a window, over a fixed set of blocks: a
// block that no position to come sees is given to positions to come.
//
// Thread safety: none.
class RollingTable final {
 public:
  // Takes turns among `blocks`, in their order.
  RollingTable(const Window& window, std::vector<BlockId> blocks);

  // Makes the table cover the positions below `end`; positions from `first` on
  // are still to be computed, and blocks that `first` sees are kept.
  // RESOURCE_EXHAUSTED: that takes more blocks than there are; nothing changes.
  absl::Status Extend(uint32_t first, uint32_t end);

  // For model::Slice: entry i holds positions [32 i, 32 i + 32) as long as they
  // are seen; later its block may stand at another entry, too.
  const std::vector<BlockId>& table() const { return table_; }

 private:
  const Window window_;
  const std::vector<BlockId> blocks_;
  std::vector<BlockId> table_;
  uint32_t oldest_;  // entry whose block is reused next
};

}  // namespace baton::kv
