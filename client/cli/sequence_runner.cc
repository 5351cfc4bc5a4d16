// SPDX-License-Identifier: Apache-2.0
#include "client/cli/sequence_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

// Rows of logits held at once: 32 MiB at 65,024 tokens.
constexpr size_t kRowsAtOnce = 128;

}  // namespace

absl::StatusOr<SequenceRunner> SequenceRunner::Create(model::Model* model, uint32_t sequences,
                                                      uint32_t tokens) {
  if (tokens > model->info().context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokens, " tokens are more than the model's ", model->info().context_tokens));
  }
  const uint32_t blocks = kv::BlocksForTokens(std::max(tokens, 1u));
  BATON_ASSIGN_OR_RETURN(kv::KvArena arena,
                         kv::KvArena::Create(model->kv_layout(), sequences * blocks));
  return SequenceRunner(model, std::move(arena), sequences, blocks);
}

SequenceRunner::SequenceRunner(model::Model* model, kv::KvArena arena, uint32_t sequences,
                               uint32_t blocks_per_sequence)
    : model_(model), arena_(std::move(arena)), blocks_per_sequence_(blocks_per_sequence) {
  for (uint32_t i = 0; i < sequences * blocks_per_sequence; ++i) blocks_.push_back(kv::BlockId{i});
}

std::span<const kv::BlockId> SequenceRunner::Blocks(uint32_t sequence) const {
  return std::span(blocks_).subspan(size_t{sequence} * blocks_per_sequence_, blocks_per_sequence_);
}

absl::Status SequenceRunner::Check(std::span<const TokenId> tokens, uint64_t end) const {
  if (end > uint64_t{blocks_per_sequence_} * kv::kBlockTokens) {
    return absl::InvalidArgumentError(absl::StrCat("position ", end - 1, " has no block"));
  }
  for (TokenId token : tokens) {
    if (token >= vocabulary()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", token, " is outside the vocabulary of ", vocabulary()));
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceRunner::Prefill(uint32_t sequence, std::span<const TokenId> tokens,
                                     std::span<float> last_row) {
  BATON_RETURN_IF_ERROR(Check(tokens, tokens.size()));
  const size_t step = model_->max_step_tokens();
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    const size_t count = std::min(step, tokens.size() - begin);
    const bool with_row = !last_row.empty() && begin + count == tokens.size();
    const model::Slice slice = {tokens.subspan(begin, count), static_cast<uint32_t>(begin),
                                Blocks(sequence),
                                with_row ? model::LogitRows::kLast : model::LogitRows::kNone};
    BATON_RETURN_IF_ERROR(model_->Forward(std::span(&slice, 1), arena_,
                                          with_row ? last_row : std::span<float>(), {}));
  }
  return absl::OkStatus();
}

absl::Status SequenceRunner::ForEachRow(std::span<const TokenId> tokens, const Row& row) {
  BATON_RETURN_IF_ERROR(Check(tokens, tokens.size()));
  const size_t step = std::min<size_t>(model_->max_step_tokens(), kRowsAtOnce);
  std::vector<float> logits(std::min(step, tokens.size()) * vocabulary());
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    const size_t count = std::min(step, tokens.size() - begin);
    const model::Slice slice = {tokens.subspan(begin, count), static_cast<uint32_t>(begin),
                                Blocks(0), model::LogitRows::kAll};
    const std::span<float> rows = std::span(logits).first(count * vocabulary());
    BATON_RETURN_IF_ERROR(model_->Forward(std::span(&slice, 1), arena_, rows, {}));
    for (size_t i = 0; i < count; ++i) {
      row(static_cast<uint32_t>(begin + i), rows.subspan(i * vocabulary(), vocabulary()));
    }
  }
  return absl::OkStatus();
}

absl::Status SequenceRunner::Step(std::span<const TokenId> tokens, uint32_t position,
                                  std::span<float> logits) {
  BATON_RETURN_IF_ERROR(Check(tokens, uint64_t{position} + 1));
  std::vector<model::Slice> slices;
  slices.reserve(tokens.size());
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    slices.push_back({tokens.subspan(i, 1), position, Blocks(i), model::LogitRows::kLast});
  }
  return model_->Forward(slices, arena_, logits, {});
}

}  // namespace baton::cli
