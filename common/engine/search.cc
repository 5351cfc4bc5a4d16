// SPDX-License-Identifier: Apache-2.0
// Beam search over the branches of a sequence.
#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

using Hypothesis = sampling::BeamSearch::Hypothesis;

// Tokens that finish a hypothesis in a phase.
std::vector<TokenId> EndsOf(const SequenceSpec& spec, const PhaseSpec& phase) {
  std::vector<TokenId> ends = spec.stop_tokens;
  ends.insert(ends.end(), phase.until_tokens.begin(), phase.until_tokens.end());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace

absl::StatusOr<sampling::BeamRow> Engine::Impl::Expand(Sequence& sequence, Branch& branch,
                                                       std::span<const float> logits) {
  const PhaseSpec& phase = sequence.phase_of(branch);
  BATON_ASSIGN_OR_RETURN(const sampling::Position position, PositionOf(sequence, branch, 0));
  return sampling::ExpandBeam(
      logits, model_->info().usable_vocabulary, position, phase.sampling,
      sampling::CandidatesPerRow(phase.beam->width, EndsOf(sequence.spec, phase).size()));
}

void Engine::Impl::StartSearch(Sequence& sequence, const Branch& branch) {
  const PhaseSpec& phase = sequence.phase_of(branch);
  uint32_t most = sequence.spec.max_tokens - sequence.outputs(branch);
  if (phase.max_tokens > 0) most = std::min(most, phase.max_tokens);
  sequence.search.emplace(*phase.beam, EndsOf(sequence.spec, phase), most);
  sequence.forked = true;
}

void Engine::Impl::CommitBeams(std::span<const Row> rows, std::span<const float> logits,
                               const StepTimes& times) {
  Sequence& sequence = *rows.front().sequence;
  const size_t width = model_->info().vocabulary_size;
  std::vector<sampling::BeamRow> beams;
  for (size_t i = 0; i < rows.size(); ++i) {
    Branch& branch = sequence.branches[i];
    if (sequence.state == State::kPrompt) CountPromptTokens(sequence, branch, rows[i].tokens);
    branch.computed += rows[i].tokens;
    auto row = Expand(sequence, branch, logits.subspan(i * width, width));
    if (!row.ok()) {
      sequence.failure = row.status();
      return;
    }
    beams.push_back(*std::move(row));
  }
  sequence.state = State::kDecoding;
  AdvanceSearch(sequence, beams, times);
}

void Engine::Impl::AdvanceSearch(Sequence& sequence, std::span<const sampling::BeamRow> rows,
                                 const StepTimes& times) {
  // Where the text of a constraint is complete, a hypothesis ends without an end token.
  const auto completes = [&](uint32_t beam, TokenId token) {
    return CompletesText(sequence, sequence.branches[beam], token);
  };
  const std::vector<uint32_t> parents = sequence.search->Advance(rows, completes);
  if (sequence.search->done()) return ConcludeSearch(sequence, times);
  FollowBeams(sequence, parents);
}

// The last beam to go on from a branch takes it over; others share its blocks.
void Engine::Impl::FollowBeams(Sequence& sequence, std::span<const uint32_t> parents) {
  std::vector<uint32_t> uses(sequence.branches.size(), 0);
  for (const uint32_t parent : parents) ++uses[parent];
  std::vector<Branch> next;
  for (size_t i = 0; i < parents.size(); ++i) {
    Branch& parent = sequence.branches[parents[i]];
    const bool last = --uses[parents[i]] == 0;
    next.push_back(last ? std::exchange(parent, Branch{}) : Share(sequence, parent));
    next.back().tokens.push_back(sequence.search->live()[i].tokens.back());
  }
  for (Branch& branch : sequence.branches) ReleaseBlocks(sequence, branch);
  sequence.branches = std::move(next);
  for (Branch& branch : sequence.branches) DropOutOfSight(sequence, branch);
}

void Engine::Impl::ConcludeSearch(Sequence& sequence, const StepTimes& times) {
  const std::vector<Hypothesis>& found = sequence.search->finished();
  if (found.empty()) {
    constexpr std::string_view kWhy = "no token can follow: the search has no candidate";
    // A constraint may leave none.
    sequence.failure = sequence.spec.constraint == nullptr
                           ? absl::InternalError(std::string(kWhy))
                           : absl::FailedPreconditionError(std::string(kWhy));
    return;
  }
  const Branch& branch = sequence.trunk();
  const bool last = sequence.in_last_phase(branch);
  const uint32_t before = branch.phase_begin;
  const auto& stops = sequence.spec.stop_tokens;
  const auto finish_of = [&](const Hypothesis& hypothesis) {
    const auto& tokens = hypothesis.beam.tokens;
    if (std::find(stops.begin(), stops.end(), tokens.back()) != stops.end()) {
      return FinishReason::kStop;
    }
    std::vector<TokenId> outputs(branch.tokens.begin() + sequence.prompt_tokens,
                                 branch.tokens.begin() + sequence.prompt_tokens + before);
    outputs.insert(outputs.end(), tokens.begin(), tokens.end());
    if (AreComplete(sequence, outputs, {})) return FinishReason::kStop;
    const bool ends = last || before + tokens.size() >= sequence.spec.max_tokens;
    return ends ? FinishReason::kLength : FinishReason::kNone;
  };
  const size_t count = std::min<size_t>(found.size(), sequence.spec.choices);
  for (uint32_t i = 0; i < count; ++i) {
    EmitHypothesis(sequence, found[i], i, finish_of(found[i]), times);
  }
  const FinishReason finish = finish_of(found.front());
  if (finish == FinishReason::kNone) return GoOnFrom(sequence, found.front());
  for (Branch& beam : sequence.branches) EndBranch(sequence, beam, finish);
}

void Engine::Impl::EmitHypothesis(Sequence& sequence, const Hypothesis& hypothesis, uint32_t choice,
                                  FinishReason finish, const StepTimes& times) {
  const Branch& branch = sequence.trunk();
  const bool logprobs = sequence.phase_of(branch).sampling.logprobs.has_value();
  const auto& beam = hypothesis.beam;
  for (size_t i = 0; i < beam.tokens.size(); ++i) {
    TokenOutput token;
    token.choice = choice;
    token.index = branch.phase_begin + static_cast<uint32_t>(i);
    token.sample.token = beam.tokens[i];
    if (logprobs) token.sample.logprobs = *beam.logprobs[i];
    if (finish != FinishReason::kNone) token.score = hypothesis.score;
    if (i + 1 == beam.tokens.size()) token.finish = finish;
    EmitToken(sequence, std::move(token), times);
  }
}

// Shares what a live beam has of it; what that one lacks is computed again.
void Engine::Impl::GoOnFrom(Sequence& sequence, const Hypothesis& hypothesis) {
  const uint32_t begin = sequence.prompt_tokens + sequence.trunk().phase_begin;
  std::vector<TokenId> tokens(sequence.trunk().tokens.begin(),
                              sequence.trunk().tokens.begin() + begin);
  tokens.insert(tokens.end(), hypothesis.beam.tokens.begin(), hypothesis.beam.tokens.end());
  const auto common = [&](const Branch& branch) {
    const size_t most = std::min<size_t>(branch.computed, tokens.size() - 1);
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(most);
    return static_cast<uint32_t>(std::mismatch(tokens.begin(), end, branch.tokens.begin()).first -
                                 tokens.begin());
  };
  const auto best =
      std::max_element(sequence.branches.begin(), sequence.branches.end(),
                       [&](const Branch& a, const Branch& b) { return common(a) < common(b); });
  Branch next = std::move(*best);
  best->blocks.clear();
  for (Branch& branch : sequence.branches) ReleaseBlocks(sequence, branch);
  next.once_computed = std::max(next.once_computed, next.computed);
  next.computed = common(next);
  next.tokens = std::move(tokens);
  next.history = {};
  next.cursor = {};
  while (next.blocks.size() > kv::BlocksForTokens(next.computed)) {
    pool_.Release(next.blocks.back(), kv::Owner::kRequest);
    next.blocks.pop_back();
  }
  sequence.branches.clear();
  sequence.branches.push_back(std::move(next));
  sequence.search.reset();
  NextPhase(sequence, sequence.trunk());
}

}  // namespace baton::engine
