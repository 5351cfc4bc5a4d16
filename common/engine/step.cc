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
  if (!flight_) flight_ = StartStep(now);
  if (!flight_) {
    BreakDeadlock(now);
    return false;
  }
  std::optional<Flight> next = RunAhead();
  Flight step = *std::exchange(flight_, std::move(next));
  ReadStep(step);
  ++counters_.steps;
  Account(step);
  if (!step.status.ok()) {
    FailStep(step);
    return true;
  }
  SampleRows(step);
  CommitRows(step, step.rows);
  // First tokens are on their way before the last blocks are copied, which
  // takes the CPU for milliseconds.
  Flush();
  CommitHandoffs();
  return true;
}

std::optional<Engine::Impl::Flight> Engine::Impl::StartStep(absl::Time now) {
  Grow(now);
  std::vector<Row> rows = PlanRows(now);
  if (rows.empty()) return std::nullopt;
  AddDrafts(rows);
  StartPrompts(rows, now);
  return Launch(std::move(rows));
}

std::vector<Engine::Impl::Row> Engine::Impl::PlanRows(absl::Time now) const {
  std::vector<Row> rows;
  std::vector<Row> chunks;
  for (Sequence* sequence :
       table_.Select([](const Sequence& s) { return s.state == State::kDecoding; })) {
    PlanBranches(*sequence, rows, chunks);
  }
  for (Sequence* sequence :
       InOrder(table_.Select([](const Sequence& s) { return s.state == State::kPrompt; }), now)) {
    chunks.push_back({sequence, 0, sequence->remaining(), sequence->fork_at == 0,
                      sequence->spec.sampling.prompt_logprobs.has_value()});
  }
  std::vector<uint32_t> remaining, order;
  for (const Row& chunk : chunks) {
    order.push_back(static_cast<uint32_t>(order.size()));
    remaining.push_back(chunk.tokens);
  }
  sched::Limits limits = limits_;
  if (!rows.empty() && !chunks.empty()) {
    limits.chunk_tokens = sched::ChunkWithin(chunk_stall_, costs_.costs(), limits.chunk_tokens);
  }
  for (const sched::Chunk& chunk :
       sched::PlanChunks(remaining, order, static_cast<uint32_t>(rows.size()), limits)) {
    Row row = chunks[chunk.prompt];
    // A row of logits for each token takes memory: few at a time.
    const uint32_t tokens = row.scored ? std::min(chunk.tokens, kScoredTokens) : chunk.tokens;
    row.sampled = row.sampled && tokens == row.tokens;
    row.tokens = tokens;
    rows.push_back(row);
  }
  return rows;
}

// A row for each branch, or a chunk where it has to catch up. Beams go on
// together.
void Engine::Impl::PlanBranches(Sequence& sequence, std::vector<Row>& rows,
                                std::vector<Row>& chunks) const {
  const bool together =
      !sequence.search ||
      std::all_of(sequence.branches.begin(), sequence.branches.end(), [this](const Branch& branch) {
        return branch.remaining() == 1 && HasBlocksForNext(branch, pool_);
      });
  for (uint32_t i = 0; i < sequence.branches.size(); ++i) {
    const Branch& branch = sequence.branches[i];
    if (!HasBlocksForNext(branch, pool_)) continue;
    if (branch.remaining() > 1) {
      chunks.push_back({&sequence, i, branch.remaining() - 1});
    } else if (together) {
      rows.push_back({&sequence, i, 1, true});
    }
  }
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

// Rows of beams, which are next to each other, are committed together.
void Engine::Impl::CommitRows(const Flight& step, std::span<Row> rows) {
  const size_t width = model_->info().vocabulary_size;
  std::span<const float> logits = step.logits;
  for (std::span<Row> rest = rows; !rest.empty();) {
    size_t count = 1, logit_rows = rest.front().logit_rows();
    const bool beams = rest.front().sampled && rest.front().sequence->search.has_value();
    if (beams) {
      count = rest.front().sequence->branches.size();
      logit_rows = count;
    }
    const auto own = logits.first(logit_rows * width);
    if (beams) {
      CommitBeams(rest.first(count), own, step.times);
    } else if (rest.front().sequence->failure.ok()) {
      CommitRow(rest.front(), own, step.times);
    }
    rest = rest.subspan(count);
    logits = logits.subspan(own.size());
  }
  for (Sequence* sequence : SequencesOf(rows)) Settle(*sequence);
}

void Engine::Impl::CommitRow(Row& row, std::span<const float> logits, const StepTimes& times) {
  if (row.drafted()) return CommitDraft(row, logits, times);
  Sequence& sequence = *row.sequence;
  Branch& branch = sequence.branches[row.branch];
  if (sequence.state == State::kPrompt || !row.sampled) {
    CountPromptTokens(sequence, branch, row.tokens);
  }
  branch.computed += row.tokens;
  if (row.scored) sequence.failure = ScorePrompt(row, logits);
  if (!sequence.failure.ok()) return;
  if (!row.sampled) {
    SendReadyBlocks(sequence);
    DropOutOfSight(sequence, branch);
    if (sequence.fork_at > 0 && branch.computed >= sequence.fork_at) ForkAgain(sequence);
    return;
  }
  const auto last =
      row.by_model ? std::span<const float>() : logits.last(model_->info().vocabulary_size);
  if (!sequence.forked) return BeginAnswers(row, last, times);
  CommitToken(
      sequence, branch,
      row.sample ? *std::move(row.sample) : ChooseToken(sequence, branch, branch.choice, last),
      times);
}

bool Engine::Impl::CommitToken(Sequence& sequence, Branch& branch,
                               absl::StatusOr<sampling::Sample> sample, const StepTimes& times) {
  if (!sample.ok()) {
    sequence.failure = sample.status();
    return false;
  }
  TokenOutput token;
  token.index = sequence.outputs(branch);
  token.sample = *std::move(sample);
  token.choice = branch.choice;
  branch.tokens.push_back(token.sample.token);
  token.finish = FinishOf(sequence, branch);
  const FinishReason finish = token.finish;
  EmitToken(sequence, std::move(token), times);
  if (finish != FinishReason::kNone) {
    EndBranch(sequence, branch, finish);
    return false;
  }
  sequence.state = State::kDecoding;
  EnterPhase(sequence, branch);
  DropOutOfSight(sequence, branch);
  return !sequence.search;
}

// The row at a position is about the token behind it.
absl::Status Engine::Impl::ScorePrompt(const Row& row, std::span<const float> logits) {
  Sequence& sequence = *row.sequence;
  const size_t width = model_->info().vocabulary_size;
  const uint32_t first = row.of().computed - row.tokens;
  PromptLogprobsOutput output{sequence.spec.ref, sequence.scored, {}};
  for (uint32_t i = 0; i < row.tokens; ++i) {
    const uint32_t index = first + i + 1;
    if (index < sequence.scored || index >= sequence.prompt_tokens) continue;
    const auto usable = logits.subspan(i * width, model_->info().usable_vocabulary);
    const TokenId token = row.of().tokens[index];
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

// Of the token behind all that `branch` has.
absl::StatusOr<sampling::Position> Engine::Impl::PositionOf(Sequence& sequence, Branch& branch,
                                                            uint32_t choice) {
  BATON_ASSIGN_OR_RETURN(const std::span<const uint64_t> allowed, AllowedTokens(sequence, branch));
  if (sequence.phase_of(branch).sampling.penalizes()) {
    branch.history.Update(branch.tokens, sequence.prompt_tokens);
  }
  return sampling::Position{.tokens = branch.tokens,
                            .output_index = sequence.outputs(branch),
                            .choice = choice,
                            .end_tokens = sequence.spec.stop_tokens,
                            .allowed = allowed,
                            .history = &branch.history};
}

absl::StatusOr<sampling::Sample> Engine::Impl::ChooseToken(Sequence& sequence, Branch& branch,
                                                           uint32_t choice,
                                                           std::span<const float> logits) {
  BATON_ASSIGN_OR_RETURN(const sampling::Position position, PositionOf(sequence, branch, choice));
  return sampling::SampleToken(logits, model_->info().usable_vocabulary, position,
                               sequence.phase_of(branch).sampling);
}

// Of the prompt for the first time, or again after a preemption.
void Engine::Impl::CountPromptTokens(Sequence& sequence, const Branch& branch, uint32_t tokens) {
  const uint32_t end = branch.computed + tokens;
  const uint32_t known = std::max(branch.once_computed, branch.computed);
  const uint32_t again = std::min(known, end) - branch.computed;
  sequence.preemptions.recomputed_tokens += again;
  counters_.recomputed_tokens += again;
  const uint32_t end_of_prompt = std::min(end, sequence.prompt_tokens);
  if (end_of_prompt > known) counters_.prompt_tokens_computed += end_of_prompt - known;
}

void Engine::Impl::EmitToken(Sequence& sequence, TokenOutput token, const StepTimes& times) {
  token.ref = sequence.spec.ref;
  if (token.index == 0 && !sequence.forked) token.prefill_end = times.end;
  if (sequence.spec.role == Role::kDecode && !sequence.stepped) {
    sequence.stepped = true;
    token.first_step_start = sequence.first_step;
  }
  output_.tokens.push_back(std::move(token));
  ++counters_.tokens_sampled;
}

}  // namespace baton::engine
