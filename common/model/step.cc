// SPDX-License-Identifier: Apache-2.0
#include "common/model/step.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton::model {
namespace {

using kernels::kAttentionRows;
using kernels::kSegmentTokens;

// From this many rows per thread on, each thread has four tiles of its own.
constexpr uint32_t kRowSplitMin = 24;
// At most so many chunks per thread, and at least so many tiles in a chunk:
// small enough for others to take over some, large enough to hide the loads of
// weights, of which every chunk needs all.
constexpr uint32_t kChunksPerThread = 4;
constexpr uint32_t kMinChunkTiles = 4;
// Rows of an item that is not split: each segment's KV is then read from the
// L2 cache by all but the first of its tiles.
constexpr uint32_t kItemRows = 4 * kAttentionRows;
// Fewer items than this per thread leave threads idle at the end.
constexpr uint32_t kItemsPerThread = 4;

absl::Status CheckSlice(const Slice& slice, const checkpoint::ModelConfig& config) {
  const uint64_t end = uint64_t{slice.first_position} + slice.tokens.size();
  if (slice.tokens.empty()) return absl::InvalidArgumentError("a slice has no tokens");
  if (end > config.context) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a slice ends at position %u; the model's context is %u tokens", end, config.context));
  }
  if (slice.blocks.size() < kv::BlocksForTokens(end)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a slice that ends at position %u has %u blocks", end, slice.blocks.size()));
  }
  BATON_RETURN_IF_ERROR(kv::CheckWindow(slice.window));
  for (TokenId token : slice.tokens) {
    if (token < config.vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("token id %u is outside the vocabulary of %u", token, config.vocabulary));
  }
  return absl::OkStatus();
}

void AddRows(Step& step, uint32_t index) {
  const Slice& slice = step.slices[index];
  const auto count = static_cast<uint32_t>(slice.tokens.size());
  step.first_row.push_back(static_cast<uint32_t>(step.rows.size()));
  for (uint32_t i = 0; i < count; ++i) {
    if (slice.logit_rows == LogitRows::kAll ||
        (slice.logit_rows == LogitRows::kLast && i + 1 == count)) {
      step.logit_rows.push_back(static_cast<uint32_t>(step.rows.size()));
    }
    step.rows.push_back({slice.tokens[i], index, slice.first_position + i});
  }
  const uint32_t end = slice.first_position + count, last_block = (end - 1) / kv::kBlockTokens;
  if (end % kv::kBlockTokens != 0 && last_block * kv::kBlockTokens >= slice.first_position) {
    step.fresh_blocks.push_back(slice.blocks[last_block]);
  }
}

// A multiple of `threads`.
uint32_t CountChunks(uint32_t tiles, uint32_t threads) {
  if (threads == 1) return 1;
  return threads * std::clamp(tiles / (threads * kMinChunkTiles), 1u, kChunksPerThread);
}

// Segments that rows [.., end) of a slice see.
uint32_t Segments(const Slice& slice, uint32_t end_row, uint32_t group) {
  return (slice.first_position + (end_row - 1) / group) / kSegmentTokens + 1;
}

// Items of at most `item_rows` rows over all segments.
std::vector<AttentionItem> WholeItems(const Step& step, const checkpoint::ModelConfig& config,
                                      uint32_t item_rows) {
  const uint32_t group = config.heads / config.kv_heads;
  std::vector<AttentionItem> items;
  for (uint32_t s = 0; s < step.slices.size(); ++s) {
    const Slice& slice = step.slices[s];
    const auto rows = static_cast<uint32_t>(slice.tokens.size()) * group;
    for (uint32_t first = 0; first < rows; first += item_rows) {
      const uint32_t end = std::min(first + item_rows, rows);
      const uint32_t segments = Segments(slice, end, group);
      for (uint32_t h = 0; h < config.kv_heads; ++h) {
        items.push_back({s, h, first, end - first, 0, segments});
      }
    }
  }
  return items;
}

// Cuts every item into one per segment; the whole ones become merges.
void SplitBySegments(Step& step) {
  step.merges = std::move(step.attention);
  step.attention.clear();
  for (AttentionItem& whole : step.merges) {
    whole.partial = step.partial_rows;
    const Slice& slice = step.slices[whole.slice];
    for (uint32_t segment = 0; segment < whole.segment_end; ++segment) {
      if (!SeesSegment(slice.window, slice.first_position, segment)) continue;
      ++whole.parts;
      AttentionItem part = whole;
      part.segment_begin = segment;
      part.segment_end = segment + 1;
      part.partial = step.partial_rows;
      step.attention.push_back(part);
      step.partial_rows += whole.rows;
    }
  }
}

void PlanAttention(Step& step, const checkpoint::ModelConfig& config, uint32_t threads) {
  const size_t enough = size_t{kItemsPerThread} * threads;
  uint32_t item_rows = kItemRows;
  step.attention = WholeItems(step, config, item_rows);
  if (step.attention.size() < enough) {
    item_rows = kAttentionRows;
    step.attention = WholeItems(step, config, item_rows);
  }
  step.items_append =
      step.rows.size() == step.slices.size() && config.heads / config.kv_heads <= item_rows;
  const auto longer = [](const AttentionItem& a, const AttentionItem& b) {
    return a.rows * a.segment_end > b.rows * b.segment_end;
  };
  std::stable_sort(step.attention.begin(), step.attention.end(), longer);
  const bool short_contexts = std::all_of(step.attention.begin(), step.attention.end(),
                                          [](const auto& item) { return item.segment_end == 1; });
  if (threads > 1 && step.attention.size() < enough && !short_contexts) SplitBySegments(step);
}

}  // namespace

bool SeesSegment(const kv::Window& window, uint32_t first_position, uint32_t segment) {
  constexpr uint32_t kSegmentBlocks = kSegmentTokens / kv::kBlockTokens;
  return segment * kSegmentBlocks < window.sink_blocks() ||
         (segment + 1) * kSegmentBlocks > window.FirstBlock(first_position);
}

absl::StatusOr<Step> PlanStep(std::span<const Slice> slices, const checkpoint::ModelConfig& config,
                              uint32_t max_tokens, uint32_t threads) {
  Step step;
  step.slices = slices;
  for (uint32_t i = 0; i < slices.size(); ++i) {
    BATON_RETURN_IF_ERROR(CheckSlice(slices[i], config));
    AddRows(step, i);
  }
  if (step.rows.empty() || step.rows.size() > max_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a step of %u tokens; from 1 to %u are possible", step.rows.size(), max_tokens));
  }
  step.tiles = kernels::RowTiles(static_cast<uint32_t>(step.rows.size()));
  step.by_rows = step.rows.size() >= std::max(2u, threads) * size_t{kRowSplitMin};
  if (step.by_rows) step.chunks = CountChunks(step.tiles.count(), threads);
  PlanAttention(step, config, threads);
  return step;
}

}  // namespace baton::model
