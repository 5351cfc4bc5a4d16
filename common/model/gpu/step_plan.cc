// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/step_plan.h"

#include <algorithm>
#include <bit>

#include "common/model/gpu/step_upload.h"

namespace baton::model::gpu {
namespace {

namespace dev = ::baton::gpu;

uint32_t EndOf(const Slice& slice) {
  return slice.first_position + static_cast<uint32_t>(slice.tokens.size());
}

void AddRows(const Step& step, StepPlan& plan) {
  for (const StepRow& row : step.rows) {
    const std::optional<uint32_t> follows = step.slices[row.slice].follows;
    plan.tokens.push_back(row.token);
    plan.sources.push_back(follows ? static_cast<int32_t>(*follows) : -1);
    plan.positions.push_back(static_cast<int32_t>(row.position));
    const kv::BlockId block = step.slices[row.slice].blocks[row.position / kv::kBlockTokens];
    plan.row_blocks.push_back(static_cast<uint32_t>(block));
  }
}

// Backwards, for an entry that nobody sees names the next one that somebody does.
void AddBlocks(const Slice& slice, StepPlan& plan) {
  const uint32_t count = kv::BlocksForTokens(EndOf(slice));
  const uint32_t first_seen = slice.window.FirstBlock(slice.first_position);
  const size_t row = plan.tables.size();
  plan.tables.resize(row + plan.table_stride);
  uint32_t next = count - 1;
  for (uint32_t i = count; i-- > 0;) {
    const bool kept = slice.window.limited() && slice.window.Keeps(i);
    if (i < first_seen && !kept) {
      plan.tables[row + i] = dev::kUnseenBlock | next;
      continue;
    }
    next = i;
    plan.tables[row + i] = static_cast<uint32_t>(slice.blocks[i]) | (kept ? dev::kKeptBlock : 0);
    // Those that the slice begins hold nothing yet.
    if (i * kv::kBlockTokens < slice.first_position) plan.read.push_back(slice.blocks[i]);
  }
  const uint32_t first = slice.first_position / kv::kBlockTokens;
  for (uint32_t i = first; i < count; ++i) plan.written.push_back(slice.blocks[i]);
}

void AddItems(const Slice& slice, uint32_t first_row, uint32_t table, uint32_t group,
              StepPlan& plan) {
  const auto packed = static_cast<uint32_t>(slice.tokens.size()) * group;
  const uint32_t before =
      slice.window.limited() ? slice.window.tokens / kv::kBlockTokens : dev::kAllBefore;
  for (uint32_t first = 0; first < packed; first += dev::kPrefillRows) {
    plan.items.push_back({first_row, first, std::min(dev::kPrefillRows, packed - first),
                          slice.first_position, table, before});
  }
}

bool DecodesAlone(const Step& step) {
  return step.rows.size() == step.slices.size() && step.logit_rows.size() == step.rows.size();
}

constexpr uint32_t kSegmentBlocks = dev::kSegmentTokens / dev::kBlockTokens;

void Pad(StepPlan& plan) {
  const auto rows = static_cast<uint32_t>(plan.tokens.size()), padded = GraphRows(rows);
  plan.tokens.resize(padded);
  plan.sources.resize(padded, -1);
  plan.positions.resize(padded, -1);
  plan.row_blocks.resize(padded);
  plan.tables.resize(size_t{padded} * plan.table_stride);
  plan.decode_positions.resize(padded, -1);
  for (uint32_t row = rows; row < padded; ++row) {
    plan.decode_rows.push_back(row);
    plan.logit_rows.push_back(row);
  }
}

}  // namespace

uint32_t GraphRows(uint32_t rows) { return rows <= 8 ? std::bit_ceil(rows) : (rows + 7) / 8 * 8; }

size_t StepPlan::bytes() const {
  const size_t words = tokens.size() + sources.size() + positions.size() + row_blocks.size() +
                       tables.size() + decode_rows.size() + decode_positions.size() +
                       logit_rows.size() + fresh.size();
  constexpr size_t kArrays = 10;
  return words * sizeof(uint32_t) + items.size() * sizeof(dev::PrefillItem) +
         kArrays * StepUpload::kAlignment;
}

StepPlan PlanGpuStep(const Step& step, uint32_t group) {
  StepPlan plan;
  AddRows(step, plan);
  plan.fresh = step.fresh_blocks;
  plan.logit_rows = step.logit_rows;
  std::stable_partition(plan.logit_rows.begin(), plan.logit_rows.end(), [&](uint32_t row) {
    return step.slices[step.rows[row].slice].choice != nullptr;
  });
  plan.graph = DecodesAlone(step);
  for (const Slice& slice : step.slices) {
    plan.table_stride = std::max(plan.table_stride, kv::BlocksForTokens(EndOf(slice)));
  }
  if (plan.graph) {
    const uint32_t segments = (plan.table_stride + kSegmentBlocks - 1) / kSegmentBlocks;
    plan.decode_segments = std::bit_ceil(segments);
    plan.table_stride = plan.decode_segments * kSegmentBlocks;
  }
  uint32_t table = 0;
  for (const bool decoding : {true, false}) {
    for (uint32_t s = 0; s < step.slices.size(); ++s) {
      const Slice& slice = step.slices[s];
      if ((slice.tokens.size() == 1) != decoding) continue;
      AddBlocks(slice, plan);
      if (decoding) {
        plan.decode_rows.push_back(step.first_row[s]);
        plan.decode_positions.push_back(static_cast<int32_t>(slice.first_position));
        plan.decode_segments =
            std::max(plan.decode_segments, slice.first_position / dev::kSegmentTokens + 1);
      } else {
        AddItems(slice, step.first_row[s], table, group, plan);
      }
      ++table;
    }
  }
  if (plan.graph) Pad(plan);
  return plan;
}

}  // namespace baton::model::gpu
