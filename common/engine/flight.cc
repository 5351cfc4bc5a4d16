// SPDX-License-Identifier: Apache-2.0
// A step on its way through the model.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/engine/impl.h"

namespace baton::engine {

std::vector<Sequence*> Engine::Impl::SequencesOf(std::span<const Row> rows) {
  std::vector<Sequence*> sequences;
  for (const Row& row : rows) {
    if (std::find(sequences.begin(), sequences.end(), row.sequence) == sequences.end()) {
      sequences.push_back(row.sequence);
    }
  }
  return sequences;
}

Engine::Impl::Flight Engine::Impl::Launch(std::vector<Row> rows) {
  Flight step{.rows = std::move(rows)};
  step.shape = ShapeOf(step.rows);
  step.times.start = absl::Now();
  for (const Row& row : step.rows) {
    if (!row.sequence->first_step) row.sequence->first_step = step.times.start;
  }
  step.status = RunModel(step);
  in_model_ += absl::Now() - step.times.start;
  return step;
}

absl::Status Engine::Impl::RunModel(Flight& step) {
  if (queue_ != nullptr) return QueueStep(step);
  std::vector<model::Slice> slices;
  size_t logit_rows = 0;
  for (const Row& row : step.rows) {
    slices.push_back(SliceOf(row));
    logit_rows += row.logit_rows();
  }
  logits_.resize(logit_rows * model_->info().vocabulary_size);
  step.logits = logits_;
  return model_->Forward(slices, *arena_, logits_, {});
}

absl::Status Engine::Impl::QueueStep(Flight& step) {
  // What slices refer to until they are started.
  std::vector<model::TokenChoice> choices(step.rows.size());
  std::vector<std::vector<uint64_t>> masks(step.rows.size());
  std::vector<model::Slice> slices;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    Row& row = step.rows[i];
    row.by_model = LetModelChoose(row, choices[i], masks[i]);
    slices.push_back(SliceOf(row));
    if (row.by_model) slices.back().choice = &choices[i];
  }
  return queue_->Start(slices, *arena_);
}

model::Slice Engine::Impl::SliceOf(const Row& row) {
  // In the place of a token that the device has.
  static constexpr TokenId kUnknown[] = {0};
  const Branch& branch = row.of();
  model::Slice slice;
  slice.first_position = branch.computed;
  slice.tokens = std::span(branch.tokens).subspan(branch.computed, row.tokens);
  if (row.drafted()) slice.tokens = row.fed;
  if (row.follows) {
    ++slice.first_position;
    slice.tokens = kUnknown;
    slice.follows = row.follows;
  }
  slice.blocks = branch.blocks;
  slice.logit_rows = row.scored || row.drafted() ? model::LogitRows::kAll
                     : row.sampled               ? model::LogitRows::kLast
                                                 : model::LogitRows::kNone;
  slice.window = row.sequence->spec.window;
  return slice;
}

void Engine::Impl::ReadStep(Flight& step) {
  const absl::Time begin = absl::Now();
  if (queue_ != nullptr && step.status.ok()) {
    const absl::StatusOr<model::StepResults> results = queue_->Collect();
    step.status = results.status();
    if (results.ok()) step.logits = results->logits;
    size_t next = 0;
    for (Row& row : step.rows) {
      if (!results.ok() || !row.by_model) continue;
      const absl::StatusOr<TokenId>& token = results->tokens[next++];
      if (token.ok()) {
        row.sample.emplace(sampling::Sample{*token, std::nullopt});
      } else {
        row.sample.emplace(token.status());
      }
    }
  }
  step.times.end = absl::Now();
  in_model_ += step.times.end - begin;
  step.times.start = std::max(step.times.start, std::exchange(model_free_, step.times.end));
  for (const kv::BlockId block : step.held) pool_.Release(block, kv::Owner::kRequest);
  step.held.clear();
  FindRowsAgain(step);
}

void Engine::Impl::FailStep(const Flight& step) {
  LogError("a model step failed",
           {{"rows", step.rows.size()}, {"error", std::string(step.status.message())}});
  for (Sequence* sequence : SequencesOf(step.rows)) {
    End(*sequence, absl::InternalError(absl::StrCat("model step: ", step.status.message())));
  }
  // What was started behind it counts for nothing: others in it are as they were before.
  if (flight_) ReadStep(*flight_);
  flight_.reset();
}

sched::StepShape Engine::Impl::ShapeOf(std::span<const Row> rows) const {
  sched::StepShape shape;
  for (const Row& row : rows) {
    const Sequence& sequence = *row.sequence;
    if (sequence.state == State::kDecoding && row.sampled) {
      shape.AddRow(sequence.attended(row.of()), row.tokens);
    } else {
      shape.AddChunk(sequence.attended(row.of()), row.tokens);
    }
  }
  return shape;
}

void Engine::Impl::Account(const Flight& step) {
  const absl::Duration elapsed = step.times.end - step.times.start;
  costs_.Observe(step.shape, elapsed);
  if (!policy_->charges()) return;
  // A step is shared by its tokens, the time of blocks by who held them.
  const auto tokens = static_cast<double>(step.shape.prompt_tokens + step.shape.rows);
  for (const Row& row : step.rows) {
    // Its blocks once, however many branches are in the step.
    const bool first = &row == step.rows.data() || (&row - 1)->sequence != row.sequence;
    const double held =
        first ? static_cast<double>(row.sequence->held_blocks()) / pool_.capacity() : 0;
    policy_->Charge(row.sequence->spec.tenant,
                    {.compute = elapsed * (row.tokens / tokens),
                     .pool_seconds = held * absl::ToDoubleSeconds(elapsed)});
  }
}

}  // namespace baton::engine
