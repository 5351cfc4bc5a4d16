// SPDX-License-Identifier: Apache-2.0
// The answers of a sequence: where they part, and where each of them ends.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {

void Engine::Impl::BeginAnswers(Row& from, std::span<const float> logits, const StepTimes& times) {
  Sequence& sequence = *from.sequence;
  Branch& trunk = sequence.trunk();
  if (!sequence.phase_of(trunk).beam) {
    sequence.failure = FirstTokens(from, logits, times);
    return;
  }
  auto row = Expand(sequence, trunk, logits);
  if (!row.ok()) {
    sequence.failure = row.status();
    return;
  }
  if (row->candidates.empty()) {
    sequence.failure = absl::FailedPreconditionError("no token can begin the answer");
    return;
  }
  KeepPrefix(sequence, trunk);
  output_.searches.push_back({sequence.spec.ref, times.end});
  if (sequence.spec.role == Role::kPrefill) {
    sequence.handoff = {.first_tokens = {}, .drawn = 0, .search = *std::move(row)};
    sequence.state = State::kHandingOff;
    uncommitted_.push_back(&sequence);
    return;
  }
  sequence.state = State::kDecoding;
  StartSearch(sequence, trunk);
  AdvanceSearch(sequence, {&*row, 1}, times);
}

// All of them come from one row of logits.
absl::Status Engine::Impl::FirstTokens(Row& row, std::span<const float> logits,
                                       const StepTimes& times) {
  Sequence& sequence = *row.sequence;
  Branch& trunk = sequence.trunk();
  std::vector<TokenOutput> tokens(sequence.spec.choices);
  bool goes_on = false;
  for (uint32_t choice = 0; choice < sequence.spec.choices; ++choice) {
    TokenOutput& token = tokens[choice];
    BATON_ASSIGN_OR_RETURN(token.sample, row.by_model
                                             ? *std::move(row.sample)
                                             : ChooseToken(sequence, trunk, choice, logits));
    token.choice = choice;
    trunk.tokens.push_back(token.sample.token);
    token.finish = FinishOf(sequence, trunk);
    trunk.tokens.pop_back();
    goes_on |= token.finish == FinishReason::kNone;
  }
  KeepPrefix(sequence, trunk);
  std::vector<TokenId> ids;
  for (TokenOutput& token : tokens) {
    ids.push_back(token.sample.token);
    if (token.finish != FinishReason::kNone) sequence.end_reason = token.finish;
    EmitToken(sequence, std::move(token), times);
  }
  if (sequence.spec.role != Role::kPrefill) {
    sequence.state = State::kDecoding;
    Fork(sequence, ids);
  } else if (goes_on) {
    sequence.handoff = {.first_tokens = std::move(ids), .drawn = 1};
    sequence.state = State::kHandingOff;
    uncommitted_.push_back(&sequence);
  } else {
    sequence.trunk().ended = true;
  }
  return absl::OkStatus();
}

void Engine::Impl::Fork(Sequence& sequence, std::span<const TokenId> first_tokens) {
  Branch trunk = std::move(sequence.trunk());
  sequence.branches.clear();
  sequence.forked = true;
  for (uint32_t choice = 0; choice < first_tokens.size(); ++choice) {
    Branch& branch = sequence.branches.emplace_back(Share(sequence, trunk));
    branch.choice = choice;
    branch.tokens.push_back(first_tokens[choice]);
    const FinishReason finish = FinishOf(sequence, branch);
    if (finish != FinishReason::kNone) {
      EndBranch(sequence, branch, finish);
      continue;
    }
    EnterPhase(sequence, branch);
    DropOutOfSight(sequence, branch);
  }
  // What the trunk has beyond the prompt is for one of them.
  const auto heir = std::find_if(sequence.branches.begin(), sequence.branches.end(),
                                 [](const Branch& branch) { return !branch.ended; });
  if (heir != sequence.branches.end()) {
    const auto live = static_cast<std::ptrdiff_t>(heir->blocks.size());
    heir->blocks.insert(heir->blocks.end(), trunk.blocks.begin() + live, trunk.blocks.end());
    trunk.blocks.resize(static_cast<size_t>(live));
  }
  ReleaseBlocks(sequence, trunk);
  DropCancelled(sequence);
}

void Engine::Impl::ForkAgain(Sequence& sequence) {
  sequence.fork_at = 0;
  sequence.state = State::kDecoding;
  const Branch& trunk = sequence.trunk();
  for (size_t i = 1; i < sequence.branches.size(); ++i) {
    Branch& branch = sequence.branches[i];
    Branch shared = Share(sequence, trunk);
    branch.computed = shared.computed;
    branch.blocks = std::move(shared.blocks);
    branch.dropped_end = shared.dropped_end;
  }
  DropCancelled(sequence);
}

Branch Engine::Impl::Share(const Sequence& sequence, const Branch& parent) {
  Branch branch = parent;
  branch.blocks.resize(kv::BlocksForTokens(branch.computed));
  for (uint32_t i = 0; i < branch.blocks.size(); ++i) {
    if (!sequence.dropped(branch, i)) pool_.Retain(branch.blocks[i], kv::Owner::kRequest);
  }
  return branch;
}

// A stop token at the length limit is a stop.
FinishReason Engine::Impl::FinishOf(const Sequence& sequence, const Branch& branch) {
  const auto& stops = sequence.spec.stop_tokens;
  if (std::find(stops.begin(), stops.end(), branch.tokens.back()) != stops.end()) {
    return FinishReason::kStop;
  }
  const auto written = std::span(branch.tokens).subspan(sequence.prompt_tokens);
  if (AreComplete(sequence, written, branch.cursor)) return FinishReason::kStop;
  const PhaseSpec& phase = sequence.phase_of(branch);
  const uint32_t outputs = sequence.outputs(branch);
  const bool last = sequence.in_last_phase(branch);
  const bool phase_ends =
      last && phase.max_tokens > 0 && outputs - branch.phase_begin >= phase.max_tokens;
  return outputs >= sequence.spec.max_tokens || phase_ends ? FinishReason::kLength
                                                           : FinishReason::kNone;
}

void Engine::Impl::EnterPhase(Sequence& sequence, Branch& branch) {
  if (sequence.in_last_phase(branch)) return;
  const PhaseSpec& phase = sequence.phase_of(branch);
  const uint32_t outputs = sequence.outputs(branch);
  const bool over = std::find(phase.until_tokens.begin(), phase.until_tokens.end(),
                              branch.tokens.back()) != phase.until_tokens.end();
  if (!over && (phase.max_tokens == 0 || outputs - branch.phase_begin < phase.max_tokens)) return;
  NextPhase(sequence, branch);
}

void Engine::Impl::NextPhase(Sequence& sequence, Branch& branch) {
  ++branch.phase;
  branch.phase_begin = sequence.outputs(branch);
  if (sequence.phase_of(branch).beam) StartSearch(sequence, branch);
}

void Engine::Impl::EndBranch(Sequence& sequence, Branch& branch, FinishReason reason) {
  sequence.end_reason = reason;
  KeepPrefix(sequence, branch);
  ReleaseBlocks(sequence, branch);
  branch.blocks.clear();
  branch.ended = true;
}

void Engine::Impl::DropCancelled(Sequence& sequence) {
  for (Branch& branch : sequence.branches) {
    if (sequence.cancelled.contains(branch.choice) && !branch.ended) {
      EndBranch(sequence, branch, sequence.end_reason);
    }
  }
}

void Engine::Impl::Settle(Sequence& sequence) {
  if (sequence.state == State::kEnding) return;
  if (!sequence.failure.ok()) {
    LogError("no token could be chosen", {{"request_id", sequence.spec.request_id},
                                          {"error", std::string(sequence.failure.message())}});
    return End(sequence, sequence.failure);
  }
  const auto ended = [](const Branch& branch) { return branch.ended; };
  const bool over = std::all_of(sequence.branches.begin(), sequence.branches.end(), ended);
  if (over) return End(sequence, absl::OkStatus(), sequence.end_reason);
  std::erase_if(sequence.branches, ended);
  if (!std::exchange(sequence.recompute, false)) return;
  if (!CanRecompute(sequence)) return End(sequence, absl::InternalError("a guess spoilt the KV"));
  DropKv(sequence);
  sequence.preempted_at = absl::Now();
  sequence.state = State::kPreempted;
}

}  // namespace baton::engine
