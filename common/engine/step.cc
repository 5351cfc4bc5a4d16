// SPDX-License-Identifier: Apache-2.0
// One step: plan, run, commit.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"
#include "common/sampling/sampler.h"

namespace baton::engine {
namespace {

constexpr uint32_t kScoredTokens = 32;

}  // namespace

bool Engine::Impl::RunStep(absl::Time now) {
  Grow(now);
  const std::vector<Row> rows = PlanRows(now);
  if (rows.empty()) {
    BreakDeadlock(now);
    return false;
  }
  StartPrompts(rows, now);
  StepTimes times;
  times.start = absl::Now();
  const absl::Status status = RunModel(rows);
  times.end = absl::Now();
  in_model_ += times.end - times.start;
  ++counters_.steps;
  Account(rows, times);
  if (!status.ok()) {
    LogError("a model step failed",
             {{"sequences", rows.size()}, {"error", std::string(status.message())}});
    for (const Row& row : rows) {
      End(*row.sequence, absl::InternalError(absl::StrCat("model step: ", status.message())));
    }
    return true;
  }
  const size_t width = model_->info().vocabulary_size;
  std::span<const float> logits = logits_;
  for (const Row& row : rows) {
    const size_t size = row.logit_rows() * width;
    CommitRow(row, logits.first(size), times);
    logits = logits.subspan(size);
  }
  // First tokens are on their way before the last blocks are copied, which
  // takes the CPU for milliseconds.
  Flush();
  CommitHandoffs();
  return true;
}

std::vector<Engine::Impl::Row> Engine::Impl::PlanRows(absl::Time now) const {
  std::vector<Row> rows;
  for (Sequence* sequence : table_.Select([](const Sequence& s) {
         return s.state == State::kDecoding && s.computed / kv::kBlockTokens < s.blocks.size();
       })) {
    rows.push_back({sequence, 1, true});
  }
  const auto prompts =
      InOrder(table_.Select([](const Sequence& s) { return s.state == State::kPrompt; }), now);
  std::vector<uint32_t> remaining, order;
  for (const Sequence* sequence : prompts) {
    order.push_back(static_cast<uint32_t>(order.size()));
    remaining.push_back(sequence->remaining());
  }
  for (const sched::Chunk& chunk :
       sched::PlanChunks(remaining, order, static_cast<uint32_t>(rows.size()), limits_)) {
    Sequence* sequence = prompts[chunk.prompt];
    const bool scored = sequence->spec.sampling.prompt_logprobs.has_value();
    // A row of logits for each token takes memory: few at a time.
    const uint32_t tokens = scored ? std::min(chunk.tokens, kScoredTokens) : chunk.tokens;
    rows.push_back({sequence, tokens, tokens == sequence->remaining(), scored});
  }
  return rows;
}

// Tells of prompts whose first chunk is in this step.
void Engine::Impl::StartPrompts(std::span<const Row> rows, absl::Time now) {
  for (const Row& row : rows) {
    Sequence& sequence = *row.sequence;
    if (sequence.started || sequence.state != State::kPrompt) continue;
    sequence.started = true;
    output_.started.push_back({sequence.spec.ref, now, sequence.cached_tokens});
    if (sequence.spec.role == Role::kPrefill) {
      sequence.writing = true;
      sender_->Begin(sequence.spec);
      SendReadyBlocks(sequence);  // those from the cache
    }
  }
}

absl::Status Engine::Impl::RunModel(std::span<const Row> rows) {
  std::vector<model::Slice> slices;
  size_t logit_rows = 0;
  for (const Row& row : rows) {
    const Sequence& sequence = *row.sequence;
    slices.push_back({std::span(sequence.tokens).subspan(sequence.computed, row.tokens),
                      sequence.computed, sequence.blocks,
                      row.scored    ? model::LogitRows::kAll
                      : row.sampled ? model::LogitRows::kLast
                                    : model::LogitRows::kNone,
                      sequence.spec.window});
    logit_rows += row.logit_rows();
  }
  logits_.resize(logit_rows * model_->info().vocabulary_size);
  return model_->Forward(slices, *arena_, logits_, {});
}

void Engine::Impl::Account(std::span<const Row> rows, const StepTimes& times) {
  sched::StepShape shape;
  for (const Row& row : rows) {
    const Sequence& sequence = *row.sequence;
    if (sequence.state == State::kDecoding) {
      shape.AddRow(sequence.attended());
    } else {
      shape.AddChunk(sequence.attended(), row.tokens);
    }
  }
  costs_.Observe(shape, times.end - times.start);
  if (!policy_->charges()) return;
  // A step is shared by its tokens, the time of blocks by who held them.
  const auto tokens = static_cast<double>(shape.prompt_tokens + shape.rows);
  const absl::Duration elapsed = times.end - times.start;
  for (const Row& row : rows) {
    const double held = static_cast<double>(row.sequence->held_blocks()) / pool_.capacity();
    policy_->Charge(row.sequence->spec.tenant,
                    {.compute = elapsed * (row.tokens / tokens),
                     .pool_seconds = held * absl::ToDoubleSeconds(elapsed)});
  }
}

void Engine::Impl::CommitRow(const Row& row, std::span<const float> logits,
                             const StepTimes& times) {
  Sequence& sequence = *row.sequence;
  if (sequence.state == State::kPrompt) CountPromptTokens(sequence, row.tokens);
  sequence.computed += row.tokens;
  if (row.scored) {
    if (absl::Status status = ScorePrompt(row, logits); !status.ok()) {
      return End(sequence, std::move(status));
    }
  }
  if (!row.sampled) {
    SendReadyBlocks(sequence);
    return DropOutOfSight(sequence);
  }
  auto sample = ChooseToken(sequence, logits.last(model_->info().vocabulary_size));
  if (!sample.ok()) {
    LogError("no token could be chosen", {{"request_id", sequence.spec.request_id},
                                          {"error", std::string(sample.status().message())}});
    return End(sequence, sample.status());
  }
  EmitToken(sequence, *std::move(sample), times);
  if (sequence.outputs() == 1) KeepPrefix(sequence);
  if (const auto reason = FinishOf(sequence)) return End(sequence, absl::OkStatus(), *reason);
  if (sequence.spec.role == Role::kPrefill) {
    sequence.state = State::kHandingOff;
    uncommitted_.push_back(&sequence);
  } else {
    sequence.state = State::kDecoding;
    DropOutOfSight(sequence);
  }
}

// The row at a position is about the token behind it.
absl::Status Engine::Impl::ScorePrompt(const Row& row, std::span<const float> logits) {
  Sequence& sequence = *row.sequence;
  const size_t width = model_->info().vocabulary_size;
  const uint32_t first = sequence.computed - row.tokens;
  PromptLogprobsOutput output{sequence.spec.ref, sequence.scored, {}};
  for (uint32_t i = 0; i < row.tokens; ++i) {
    const uint32_t index = first + i + 1;
    if (index < sequence.scored || index >= sequence.prompt_tokens) continue;
    const auto usable = logits.subspan(i * width, model_->info().usable_vocabulary);
    const TokenId token = sequence.tokens[index];
    if (token >= usable.size()) {
      return absl::InvalidArgumentError(absl::StrCat("prompt token ", index, " is ", token,
                                                     ", a padding id, which has no probability"));
    }
    BATON_ASSIGN_OR_RETURN(
        output.logprobs.emplace_back(),
        sampling::ComputeLogprobs(usable, token, *sequence.spec.sampling.prompt_logprobs));
    sequence.scored = index + 1;
  }
  if (!output.logprobs.empty()) output_.prompt_logprobs.push_back(std::move(output));
  return absl::OkStatus();
}

absl::StatusOr<sampling::Sample> Engine::Impl::ChooseToken(Sequence& sequence,
                                                           std::span<const float> logits) const {
  const sampling::Params& params = sequence.spec.sampling;
  if (params.penalizes()) sequence.history.Update(sequence.tokens, sequence.prompt_tokens);
  const sampling::Position position{.tokens = sequence.tokens,
                                    .output_index = sequence.outputs(),
                                    .end_tokens = sequence.spec.stop_tokens,
                                    .history = &sequence.history};
  return sampling::SampleToken(logits, model_->info().usable_vocabulary, position, params);
}

// Of the prompt for the first time, or again after a preemption.
void Engine::Impl::CountPromptTokens(Sequence& sequence, uint32_t tokens) {
  const uint32_t end = sequence.computed + tokens;
  const uint32_t known = std::max(sequence.once_computed, sequence.computed);
  const uint32_t again = std::min(known, end) - sequence.computed;
  sequence.preemptions.recomputed_tokens += again;
  counters_.recomputed_tokens += again;
  const uint32_t end_of_prompt = std::min(end, sequence.prompt_tokens);
  if (end_of_prompt > known) counters_.prompt_tokens_computed += end_of_prompt - known;
}

void Engine::Impl::EmitToken(Sequence& sequence, sampling::Sample sample, const StepTimes& times) {
  TokenOutput token;
  token.ref = sequence.spec.ref;
  token.index = sequence.outputs();
  if (token.index == 0) token.prefill_end = times.end;
  if (token.index == 1 && sequence.spec.role == Role::kDecode) {
    token.first_step_start = times.start;
  }
  sequence.tokens.push_back(sample.token);
  token.sample = std::move(sample);
  output_.tokens.push_back(std::move(token));
  ++counters_.tokens_sampled;
}

// Whether the last token ends the sequence. A stop token at the length limit
// is a stop.
std::optional<FinishReason> Engine::Impl::FinishOf(const Sequence& sequence) const {
  const auto& stops = sequence.spec.stop_tokens;
  if (std::find(stops.begin(), stops.end(), sequence.tokens.back()) != stops.end()) {
    return FinishReason::kStop;
  }
  if (sequence.outputs() >= sequence.spec.max_tokens) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace baton::engine
