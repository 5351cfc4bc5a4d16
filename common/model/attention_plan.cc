// SPDX-License-Identifier: Apache-2.0
#include "common/model/attention_plan.h"

#include <algorithm>

namespace baton::model {
namespace {

using kernels::kAttentionRows;
using kernels::kSegmentTokens;

constexpr uint32_t kSegmentBlocks = kSegmentTokens / kv::kBlockTokens;
// Rows of an item that is not split: each segment's KV is then read from the
// L2 cache by all but the first of its tiles.
constexpr uint32_t kItemRows = 4 * kAttentionRows;
// Fewer items than this per thread leave threads idle at the end.
constexpr uint32_t kItemsPerThread = 4;

// Consecutive slices of one token each, with the same blocks in their first
// segments.
struct SharedRun {
  uint32_t slice, slices, segments;
};

class Planner final {
 public:
  Planner(Step& step, const checkpoint::ModelConfig& config, uint32_t threads)
      : step_(step),
        kv_heads_(config.kv_heads),
        group_(config.heads / config.kv_heads),
        threads_(threads),
        shared_(step.slices.size(), 0) {}

  void Plan();

 private:
  size_t enough() const { return size_t{kItemsPerThread} * threads_; }
  // Segments at the start that both see whole, in the same blocks.
  uint32_t CommonSegments(uint32_t a, uint32_t b) const;
  std::vector<SharedRun> FindRuns() const;
  void AddShared(const SharedRun& run);
  // Items over all segments that are not shared.
  std::vector<AttentionItem> WholeItems(uint32_t item_rows) const;
  // An item whose results come in parts: of the shared segments, and one of each
  // segment that is not.
  void AddParts(const AttentionItem& item);
  size_t AddPart(AttentionItem item, uint32_t segment_begin, uint32_t segment_end);
  std::vector<size_t>& SharedParts(uint32_t slice, uint32_t kv_head) {
    return shared_parts_[size_t{slice} * kv_heads_ + kv_head];
  }

  Step& step_;
  const uint32_t kv_heads_, group_, threads_;
  std::vector<uint32_t> shared_;                   // [slices]: segments
  std::vector<std::vector<size_t>> shared_parts_;  // [slices, KV heads]: partial rows
};

uint32_t Planner::CommonSegments(uint32_t a, uint32_t b) const {
  const Slice &one = step_.slices[a], &other = step_.slices[b];
  for (const Slice* slice : {&one, &other}) {
    if (slice->tokens.size() != 1 || slice->window.limited()) return 0;
  }
  const auto whole = one.blocks.begin() + std::min(one.first_position, other.first_position) /
                                              kSegmentTokens * kSegmentBlocks;
  const auto differ = std::mismatch(one.blocks.begin(), whole, other.blocks.begin()).first;
  return static_cast<uint32_t>(differ - one.blocks.begin()) / kSegmentBlocks;
}

// A slice joins a run when that shortens nothing.
std::vector<SharedRun> Planner::FindRuns() const {
  std::vector<SharedRun> runs;
  const auto count = static_cast<uint32_t>(step_.slices.size());
  for (uint32_t first = 0; first + 1 < count;) {
    const uint32_t segments = CommonSegments(first, first + 1);
    uint32_t end = first + 1;
    while (segments > 0 && end < count && CommonSegments(first, end) >= segments) ++end;
    if (end - first > 1) runs.push_back({first, end - first, segments});
    first = end;
  }
  return runs;
}

size_t Planner::AddPart(AttentionItem item, uint32_t segment_begin, uint32_t segment_end) {
  item.segment_begin = segment_begin;
  item.segment_end = segment_end;
  item.partial = step_.partial_rows;
  step_.attention.push_back(item);
  step_.partial_rows += item.rows;
  return item.partial;
}

void Planner::AddShared(const SharedRun& run) {
  const uint32_t most_slices = std::max(1u, kItemRows / group_);
  const uint32_t chunks = (run.slices + most_slices - 1) / most_slices;
  // Segments are folded one after another, so only the first part of a row may
  // have several: folded into nothing, its sums stay what they are.
  const uint32_t length = size_t{kv_heads_} * chunks < enough() ? 1 : run.segments;
  for (uint32_t slice = run.slice; slice < run.slice + run.slices; slice += most_slices) {
    const uint32_t slices = std::min(most_slices, run.slice + run.slices - slice);
    for (uint32_t h = 0; h < kv_heads_; ++h) {
      for (uint32_t begin = 0; begin < run.segments; begin += length) {
        const size_t partial = AddPart({slice, h, 0, slices * group_, 0, 0}, begin,
                                       std::min(begin + length, run.segments));
        for (uint32_t i = 0; i < slices; ++i) {
          SharedParts(slice + i, h).push_back(partial + size_t{i} * group_);
        }
      }
    }
  }
  std::fill_n(shared_.begin() + run.slice, run.slices, run.segments);
}

std::vector<AttentionItem> Planner::WholeItems(uint32_t item_rows) const {
  std::vector<AttentionItem> items;
  for (uint32_t s = 0; s < step_.slices.size(); ++s) {
    const Slice& slice = step_.slices[s];
    const auto rows = static_cast<uint32_t>(slice.tokens.size()) * group_;
    for (uint32_t first = 0; first < rows; first += item_rows) {
      const uint32_t end = std::min(first + item_rows, rows);
      const uint32_t last_position = slice.first_position + (end - 1) / group_;
      for (uint32_t h = 0; h < kv_heads_; ++h) {
        items.push_back({s, h, first, end - first, shared_[s], last_position / kSegmentTokens + 1});
      }
    }
  }
  return items;
}

void Planner::AddParts(const AttentionItem& item) {
  MergeItem merge{item.slice, item.kv_head, item.first, item.rows, {}};
  if (shared_[item.slice] > 0) {
    for (size_t part : SharedParts(item.slice, item.kv_head)) {
      merge.parts.push_back(part + item.first);
    }
  }
  const Slice& slice = step_.slices[item.slice];
  for (uint32_t segment = item.segment_begin; segment < item.segment_end; ++segment) {
    if (!SeesSegment(slice.window, slice.first_position, segment)) continue;
    merge.parts.push_back(AddPart(item, segment, segment + 1));
  }
  step_.merges.push_back(std::move(merge));
}

void Planner::Plan() {
  if (const std::vector<SharedRun> runs = FindRuns(); !runs.empty()) {
    shared_parts_.resize(step_.slices.size() * kv_heads_);
    for (const SharedRun& run : runs) AddShared(run);
  }
  uint32_t item_rows = kItemRows;
  std::vector<AttentionItem> items = WholeItems(item_rows);
  if (items.size() < enough()) {
    item_rows = kAttentionRows;
    items = WholeItems(item_rows);
  }
  step_.items_append = step_.rows.size() == step_.slices.size() && group_ <= item_rows;
  const bool short_contexts = std::all_of(items.begin(), items.end(), [](const auto& item) {
    return item.segment_end - item.segment_begin == 1;
  });
  const bool split = threads_ > 1 && items.size() < enough() && !short_contexts;
  for (const AttentionItem& item : items) {
    if (split || shared_[item.slice] > 0) {
      AddParts(item);
    } else {
      step_.attention.push_back(item);
    }
  }
  const auto longer = [](const AttentionItem& a, const AttentionItem& b) {
    return a.rows * (a.segment_end - a.segment_begin) > b.rows * (b.segment_end - b.segment_begin);
  };
  std::stable_sort(step_.attention.begin(), step_.attention.end(), longer);
}

}  // namespace

bool SeesSegment(const kv::Window& window, uint32_t first_position, uint32_t segment) {
  const uint32_t begin = segment * kSegmentBlocks, end = begin + kSegmentBlocks;
  return end > window.FirstBlock(first_position) || window.KeptBelow(end) > window.KeptBelow(begin);
}

void PlanAttention(Step& step, const checkpoint::ModelConfig& config, uint32_t threads) {
  Planner(step, config, threads).Plan();
}

}  // namespace baton::model
