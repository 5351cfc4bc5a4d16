// SPDX-License-Identifier: Apache-2.0
#include "common/kv/window.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::kv {
namespace {

absl::Status CheckMultiple(std::string_view field, uint32_t value) {
  if (value % kBlockTokens == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(field), " is ", value, "; it must be a multiple of ", kBlockTokens));
}

absl::Status CheckKeep(const Window& window) {
  uint32_t least = window.sinks;
  for (size_t i = 0; i < window.keep.size() && window.keep[i].end > 0; ++i) {
    const auto [begin, end] = window.keep[i];
    const std::string field = absl::StrCat("keep[", i, "]");
    for (const uint32_t bound : {begin, end}) {
      if (absl::Status status = CheckMultiple(field, bound); !status.ok()) return status;
    }
    if (begin < least || end <= begin) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, " is ", begin, " to ", end, "; it must begin at ", least,
                       " or later, behind the sinks and the range before, and hold a token"));
    }
    least = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWindow(const Window& window) {
  for (const auto& [what, value, rule] :
       {std::tuple{"sinks is ", window.sinks, "sinks need a window"},
        {"stride is ", window.stride, "a stride needs a window"},
        {"keep[0] ends at ", window.keep.front().end, "tokens to keep need a window"}}) {
    if (window.limited() || value == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, value, " and window is 0; ", rule));
  }
  for (const auto& [field, value] :
       {std::pair{"window", window.tokens}, {"sinks", window.sinks}, {"stride", window.stride}}) {
    if (absl::Status status = CheckMultiple(field, value); !status.ok()) return status;
  }
  if (window.stride == kBlockTokens) {
    return absl::InvalidArgumentError(absl::StrCat("stride is ", kBlockTokens,
                                                   ", which keeps every block; it must be ",
                                                   2 * kBlockTokens, " or more, or 0"));
  }
  return CheckKeep(window);
}

// Intervals lie apart from each other; of a stride's blocks those inside of them
// count once.
uint32_t Window::KeptBelow(uint32_t end) const {
  const auto strided = [this](uint32_t block) {
    return stride > 0 ? block / (stride / kBlockTokens) : 0;
  };
  uint32_t kept = strided(end);
  const auto add = [&](uint32_t first, uint32_t last) {
    last = std::min(last, end);
    if (first < last) kept += last - first - (strided(last) - strided(first));
  };
  add(0, sinks / kBlockTokens);
  for (const TokenRange& range : keep) {
    if (range.end == 0) break;
    add(range.begin / kBlockTokens, range.end / kBlockTokens);
  }
  return kept;
}

uint64_t Window::UnseenBefore(uint64_t position) const {
  const uint32_t first = FirstBlock(
      static_cast<uint32_t>(std::min<uint64_t>(position, std::numeric_limits<uint32_t>::max())));
  return uint64_t{first - KeptBelow(first)} * kBlockTokens;
}

uint64_t Window::Held(uint64_t most) const {
  if (!limited() || most == 0) return most;
  const uint64_t last = std::min<uint64_t>(most - 1, std::numeric_limits<uint32_t>::max());
  return std::min(most, uint64_t{SeenBlocks(static_cast<uint32_t>(last))} * kBlockTokens);
}

uint64_t BlocksForWindow(const Window& window, uint32_t chunk, uint32_t positions) {
  // A chunk touches one block more than it fills when it begins inside of one.
  const uint64_t touched = chunk == 1 ? 1 : BlocksForTokens(uint64_t{chunk} - 1) + 1;
  return uint64_t{window.KeptBelow(window.FirstBlock(positions - 1))} +
         window.tokens / kBlockTokens + touched;
}

uint64_t MostBlocks(const Window& window, uint64_t prompt, uint64_t positions) {
  const uint64_t all = BlocksForTokens(positions);
  if (!window.limited() || positions == 0) return all;
  const uint64_t rolling = BlocksForTokens(window.Held(positions));
  return std::min(all, std::max<uint64_t>(BlocksForTokens(prompt), rolling));
}

RollingTable::RollingTable(const Window& window, std::vector<BlockId> blocks)
    : window_(window), blocks_(std::move(blocks)), oldest_(NextLoose(0)) {}

uint32_t RollingTable::NextLoose(uint32_t entry) const {
  while (window_.limited() && window_.Keeps(entry)) ++entry;
  return entry;
}

absl::Status RollingTable::Extend(uint32_t first, uint32_t end) {
  const size_t wanted = BlocksForTokens(end);
  if (wanted > blocks_.size() && wanted > table_.size()) {
    // Entries before this one may give their blocks up.
    const uint32_t bound = std::max(oldest_, window_.FirstBlock(first));
    const uint32_t loose =
        bound - oldest_ - (window_.KeptBelow(bound) - window_.KeptBelow(oldest_));
    const size_t reused = wanted - std::max(blocks_.size(), table_.size());
    if (reused > loose) {
      return absl::ResourceExhaustedError(absl::StrCat("positions up to ", end, " need ", reused,
                                                       " more blocks than the ", blocks_.size(),
                                                       " of the window"));
    }
  }
  while (table_.size() < wanted) {
    if (table_.size() < blocks_.size()) {
      table_.push_back(blocks_[table_.size()]);
      continue;
    }
    table_.push_back(table_[oldest_]);
    oldest_ = NextLoose(oldest_ + 1);
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
