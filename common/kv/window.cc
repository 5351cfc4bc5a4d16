// SPDX-License-Identifier: Apache-2.0
#include "common/kv/window.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::kv {

absl::Status CheckWindow(const Window& window) {
  if (window.sinks > 0 && !window.limited()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sinks is ", window.sinks, " and window is 0; sinks need a window"));
  }
  for (const auto& [field, value] : {std::pair{"window", window.tokens}, {"sinks", window.sinks}}) {
    if (value % kBlockTokens == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", value, "; it must be a multiple of ", kBlockTokens));
  }
  return absl::OkStatus();
}

uint64_t BlocksForWindow(const Window& window, uint32_t chunk) {
  // A chunk touches one block more than it fills when it begins inside of one.
  const uint64_t touched = chunk == 1 ? 1 : BlocksForTokens(uint64_t{chunk} - 1) + 1;
  return uint64_t{window.sink_blocks()} + window.tokens / kBlockTokens + touched;
}

uint64_t MostBlocks(const Window& window, uint64_t prompt, uint64_t positions) {
  const uint64_t all = BlocksForTokens(positions);
  if (!window.limited()) return all;
  const uint64_t rolling = BlocksForWindow(window, 1);
  return std::min(all, std::max<uint64_t>(BlocksForTokens(prompt), rolling));
}

RollingTable::RollingTable(const Window& window, std::vector<BlockId> blocks)
    : window_(window), blocks_(std::move(blocks)), oldest_(window.sink_blocks()) {}

absl::Status RollingTable::Extend(uint32_t first, uint32_t end) {
  const size_t wanted = BlocksForTokens(end);
  if (wanted > blocks_.size()) {
    // Entries before this one may give their blocks up.
    const uint32_t kept = window_.limited() ? window_.FirstBlock(first) : 0;
    const size_t reused = wanted - std::max(blocks_.size(), table_.size());
    if (wanted > table_.size() && oldest_ + reused > kept) {
      return absl::ResourceExhaustedError(absl::StrCat("positions up to ", end, " need ", reused,
                                                       " more blocks than the ", blocks_.size(),
                                                       " of the window"));
    }
  }
  while (table_.size() < wanted) {
    const bool fresh = table_.size() < blocks_.size();
    table_.push_back(fresh ? blocks_[table_.size()] : table_[oldest_++]);
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
