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

// Query rows of one slice and KV head, against some segments of its context. A
// row is one query head of one position: index = (position - first) * group +
// head in group.
struct AttentionItem {
  uint32_t slice, kv_head;
  uint32_t first, rows;
  uint32_t segment_begin, segment_end;
  // When the step is split by segments: where this item's partial rows start,
  // and of a merge, how many parts there are.
  size_t partial = 0;
  uint32_t parts = 0;
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
  // Every slice is one token and every KV head of it one item (or, split by
  // segments, one last item): the item itself appends that head's K and V.
  bool items_append = false;
  // Non-empty when attention is split by segments: items whose partial rows,
  // [parts, rows], are to be folded.
  std::vector<AttentionItem> merges;
  size_t partial_rows = 0;
};

// INVALID_ARGUMENT when a slice breaks the contract of Model::Forward.
absl::StatusOr<Step> PlanStep(std::span<const Slice> slices, const checkpoint::ModelConfig& config,
                              uint32_t max_tokens, uint32_t threads);

}  // namespace baton::model
