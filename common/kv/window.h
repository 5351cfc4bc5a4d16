// SPDX-License-Identifier: Apache-2.0
// Attention over a part of the context, by whole KV blocks: a window of the latest
// tokens, the first ones (attention sinks: Xiao et al., 2023, "Efficient Streaming
// Language Models with Attention Sinks"), one block of each stride (the "fixed"
// pattern of Child et al., 2019, "Generating Long Sequences with Sparse
// Transformers", at block size), and tokens that the caller names to keep.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"

namespace baton::kv {

// Tokens [begin, end), multiples of kBlockTokens; end == 0: none.
struct TokenRange {
  uint32_t begin = 0, end = 0;

  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// Which earlier tokens a position sees: the first `sinks`, those of its own
// block up to itself, the `tokens` before its block, the last block of every
// `stride` tokens, and those to `keep`. Whole blocks, so that a block is either
// read or free, and no kernel needs a second mask. Positions stay absolute, and
// so do strides: a block that has left the window is seen by all later positions
// or by none.
struct Window {
  static constexpr size_t kMostKeep = 8;

  uint32_t tokens = 0;  // a multiple of kBlockTokens; 0: all tokens are seen
  uint32_t sinks = 0;   // a multiple of kBlockTokens
  uint32_t stride = 0;  // a multiple of kBlockTokens, more than one; 0: none
  // Ascending, apart from each other and behind the sinks; unused ones come last.
  std::array<TokenRange, kMostKeep> keep = {};

  bool limited() const { return tokens > 0; }
  // Sees more than the latest tokens and the first ones.
  bool sparse() const { return stride > 0 || keep.front().end > 0; }
  // First block that `position` sees beside the kept ones.
  uint32_t FirstBlock(uint32_t position) const {
    const uint32_t block = position / kBlockTokens, before = tokens / kBlockTokens;
    return limited() && block > before ? block - before : 0;
  }
  // Whether `block` is seen however far behind it is. REQUIRES: limited().
  bool Keeps(uint32_t block) const {
    if (block < sinks / kBlockTokens) return true;
    if (stride > 0 && (block + 1) % (stride / kBlockTokens) == 0) return true;
    for (const TokenRange& range : keep) {
      if (block < range.begin / kBlockTokens || range.end == 0) return false;
      if (block < range.end / kBlockTokens) return true;
    }
    return false;
  }
  // Kept blocks below `end`.
  uint32_t KeptBelow(uint32_t end) const;
  bool SeesBlock(uint32_t position, uint32_t block) const {
    return block <= position / kBlockTokens && (block >= FirstBlock(position) || Keeps(block));
  }
  // Blocks below `end` that `position` sees. REQUIRES: none of them is behind it.
  uint32_t SeenBelow(uint32_t position, uint32_t end) const {
    const uint32_t first = FirstBlock(position);
    return end <= first ? KeptBelow(end) : KeptBelow(first) + end - first;
  }
  // All that `position` sees.
  uint32_t SeenBlocks(uint32_t position) const {
    return SeenBelow(position, position / kBlockTokens + 1);
  }
  // Positions before `position` whose blocks neither it nor a later one sees.
  uint64_t UnseenBefore(uint64_t position) const;
  // Positions whose blocks a sequence of `most` holds at most while it decodes.
  uint64_t Held(uint64_t most) const;

  friend bool operator==(const Window&, const Window&) = default;
};

// INVALID_ARGUMENT names the field and the value that break the rules above, or
// sinks, stride or tokens to keep without a window.
absl::Status CheckWindow(const Window& window);

// Blocks that a sequence of so many `positions` needs while at most `chunk` tokens
// are computed at a time; by default of any number, which takes a window without
// a stride. REQUIRES: window.limited(), chunk > 0, positions > 0.
uint64_t BlocksForWindow(const Window& window, uint32_t chunk, uint32_t positions = UINT32_MAX);

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
  // The first entry from `entry` on that is not kept.
  uint32_t NextLoose(uint32_t entry) const;

  const Window window_;
  const std::vector<BlockId> blocks_;
  std::vector<BlockId> table_;
  uint32_t oldest_ = 0;  // entry whose block is reused next
};

}  // namespace baton::kv
