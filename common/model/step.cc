// SPDX-License-Identifier: Apache-2.0
#include "common/model/step.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/attention_plan.h"

namespace baton::model {
namespace {

// From this many rows per thread on, each thread has four tiles of its own.
constexpr uint32_t kRowSplitMin = 24;
// At most so many chunks per thread, and at least so many tiles in a chunk:
// small enough for others to take over some, large enough to hide the loads of
// weights, of which every chunk needs all.
constexpr uint32_t kChunksPerThread = 4;
constexpr uint32_t kMinChunkTiles = 4;

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

}  // namespace

bool IsByRows(size_t rows, uint32_t threads) {
  return rows >= std::max(2u, threads) * size_t{kRowSplitMin};
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
  step.by_rows = IsByRows(step.rows.size(), threads);
  if (step.by_rows) step.chunks = CountChunks(step.tiles.count(), threads);
  PlanAttention(step, config, threads);
  return step;
}

}  // namespace baton::model
