// SPDX-License-Identifier: Apache-2.0
// What one Forward call has to compute, laid out for the threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/model.h"
#include "kernels/api/attention.h"
#include "kernels/api/linear.h"

namespace baton::model {

struct StepRow {
  TokenId token;
  uint32_t slice;
  uint32_t position;
};

// Query rows of one KV head of a slice, against some segments of its context. A
// row is one query head of one position: index = (position - first) * group +
// head in group. Rows beyond the slice's are those of the slices behind it, which
// have a token each and share the blocks of these segments.
struct AttentionItem {
  static constexpr size_t kWhole = SIZE_MAX;

  uint32_t slice, kv_head;
  uint32_t first, rows;
  uint32_t segment_begin, segment_end;
  // Where its results stand among the partial rows; kWhole: it has all segments,
  // and replaces its queries by their context.
  size_t partial = kWhole;
};

// Rows of one KV head of a slice whose results come in parts.
struct MergeItem {
  uint32_t slice, kv_head;
  uint32_t first, rows;
  // Partial rows where each begins, in order of segments. Only the first may be of
  // several segments: folded into nothing, it stays what it is.
  std::vector<size_t> parts;
};

// Whether some position from `first_position` on that reaches `segment` may
// see a block of it.
bool SeesSegment(const kv::Window& window, uint32_t first_position, uint32_t segment);

struct Step {
  std::span<const Slice> slices;
  std::vector<uint32_t> first_row;  // [slices]: of each slice in `rows`
  std::vector<StepRow> rows;
  kernels::RowTiles tiles{0};
  std::vector<uint32_t> logit_rows;  // indices into `rows`
  // Enough rows to give each thread its own; otherwise threads share the rows
  // and split the panels.
  bool by_rows = false;
  uint32_t chunks = 0;  // that the tiles are cut into by rows
  // Blocks whose first slot is written now and whose last slot is not: zeroed
  // first, so that no stale NaN is ever multiplied by a zero weight.
  std::vector<kv::BlockId> fresh_blocks;

  std::vector<AttentionItem> attention;  // costliest first
  // Every slice is one token, and one item has the last segment of each KV head
  // of it: that item itself appends the head's K and V.
  bool items_append = false;
  std::vector<MergeItem> merges;
  size_t partial_rows = 0;
};

// Whether a step of so many rows is by rows on `threads`.
bool IsByRows(size_t rows, uint32_t threads);

// INVALID_ARGUMENT when a slice breaks the contract of Model::Forward.
absl::StatusOr<Step> PlanStep(std::span<const Slice> slices, const checkpoint::ModelConfig& config,
                              uint32_t max_tokens, uint32_t threads);

}  // namespace baton::model
