// SPDX-License-Identifier: Apache-2.0
// Tokens that are guessed from what a branch has said, and checked in the step
// that computes its next one. As in speculative decoding (Leviathan et al., 2023),
// but a draft counts only where it is what is chosen anyway, by the sampling of
// that position: tokens are those of plain decoding.
#include <algorithm>
#include <cmath>

#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

// Drafts of one step, whose logits take memory.
constexpr uint32_t kMostDrafts = 64;
// What a row costs at least, in tokens of the step, where costs are not known yet.
constexpr double kLeastPrice = 0.02;

// Positions behind the next one that have their blocks.
uint32_t RoomBehindNext(const Branch& branch) {
  return static_cast<uint32_t>(branch.blocks.size()) * kv::kBlockTokens - (branch.computed + 1);
}

// How many tokens of a draft may be the answer's: none follows an end token. A
// prompt has them where a turn ends, seldom where the answer does.
uint32_t BeforeEnd(const speculation::Draft& draft, std::span<const TokenId> ends) {
  const auto end =
      std::find_first_of(draft.tokens.begin(), draft.tokens.end(), ends.begin(), ends.end());
  const auto before = static_cast<uint32_t>(end - draft.tokens.begin());
  const bool likely = draft.evidence == speculation::Evidence::kLong ||
                      draft.evidence == speculation::Evidence::kResumed;
  return before + (likely && end != draft.tokens.end() ? 1 : 0);
}

}  // namespace

// Not in steps with prompts: these are long anyway, and the rows of their chunks
// are needed for sure.
void Engine::Impl::AddDrafts(std::vector<Row>& rows) {
  const bool decodes = std::all_of(rows.begin(), rows.end(), [](const Row& row) {
    return row.sampled && row.sequence->state == State::kDecoding;
  });
  if (!decodes) return;
  const absl::Duration per_token = TimePerToken(ShapeOf(rows));
  uint32_t room =
      std::min(kMostDrafts, limits_.max_step_tokens - static_cast<uint32_t>(rows.size()));
  for (Row& row : rows) {
    if (row.sequence->search || row.sequence->spec.draft_tokens == 0) continue;
    AddDraft(row, per_token, room);
    room -= row.tokens - 1;
  }
}

absl::Duration Engine::Impl::TimePerToken(const sched::StepShape& shape) const {
  return costs_.costs().Step(shape) / static_cast<double>(shape.rows);
}

// In tokens of the step.
double Engine::Impl::PriceOfDraft(const Row& row, absl::Duration per_token) const {
  if (per_token <= absl::ZeroDuration()) return kLeastPrice;
  const sched::StepCosts& costs = costs_.costs();
  const double seconds = costs.row + costs.again_attended * row.sequence->attended(row.of());
  return std::max(kLeastPrice, seconds / absl::ToDoubleSeconds(per_token));
}

// Of at most `most` tokens, up to where the answer may end.
speculation::Draft Engine::Impl::DraftFor(const Sequence& sequence, Branch& branch, uint32_t most) {
  // Behind the last token there is none to come.
  const uint32_t left = sequence.spec.max_tokens - sequence.outputs(branch) - 1;
  if (!branch.drafts) branch.drafts.emplace();
  branch.drafts->lookup.Update(branch.tokens);
  speculation::Draft draft = branch.drafts->lookup.Propose(
      branch.tokens, std::min({sequence.spec.draft_tokens, left, most}));
  draft.tokens.resize(BeforeEnd(draft, sequence.spec.stop_tokens));
  return draft;
}

bool Engine::Impl::WantsDraft(const Row& row, absl::Duration per_token) {
  Sequence& sequence = *row.sequence;
  if (sequence.spec.draft_tokens == 0) return false;
  Branch& branch = sequence.branches[row.branch];
  const speculation::Draft draft = DraftFor(sequence, branch, kMostDrafts);
  const auto offered = static_cast<uint32_t>(draft.tokens.size());
  if (offered == 0) return false;
  speculation::DraftRecord& record = branch.drafts->record;
  const double probability = record.Probability(draft.evidence);
  if (speculation::DraftLength(probability, PriceOfDraft(row, per_token), offered) > 0) return true;
  record.Skip(draft.evidence);
  return false;
}

void Engine::Impl::AddDraft(Row& row, absl::Duration per_token, uint32_t room) {
  Sequence& sequence = *row.sequence;
  Branch& branch = sequence.branches[row.branch];
  const speculation::Draft draft = DraftFor(sequence, branch, room);
  Branch::Drafts& drafts = *branch.drafts;
  const auto offered = static_cast<uint32_t>(draft.tokens.size());
  if (offered == 0) return;
  const double probability = drafts.record.Probability(draft.evidence);
  uint32_t length = speculation::DraftLength(probability, PriceOfDraft(row, per_token), offered);
  if (length == 0 && speculation::DraftLength(probability, kLeastPrice, 1) > 0 &&
      price_doubt_.Try()) {
    length = 1;
  }
  if (length == 0) return drafts.record.Skip(draft.evidence);
  // A block that nobody needs; nothing is evicted for a guess.
  if (length > RoomBehindNext(branch) && pool_.free_blocks() > GrowthReserve()) {
    if (const auto block = pool_.Allocate(1, kv::Owner::kRequest); block.ok()) {
      branch.blocks.push_back(block->front());
    }
  }
  length = std::min(length, RoomBehindNext(branch));
  if (length == 0) return;
  row.fed.assign(1, branch.tokens.back());
  row.fed.insert(row.fed.end(), draft.tokens.begin(), draft.tokens.begin() + length);
  row.tokens = 1 + length;
  row.evidence = draft.evidence;
}

// The first token that the draft does not have is the last one that counts.
void Engine::Impl::CommitDraft(const Row& row, std::span<const float> logits,
                               const StepTimes& times) {
  Sequence& sequence = *row.sequence;
  Branch& branch = sequence.branches[row.branch];
  const size_t width = model_->info().vocabulary_size;
  const uint32_t drafted = row.tokens - 1;
  uint32_t chosen = 0;
  bool goes_on = true, right = true;
  while (goes_on && right && chosen < row.tokens) {
    ++branch.computed;
    goes_on = CommitToken(
        sequence, branch,
        ChooseToken(sequence, branch, branch.choice, logits.subspan(chosen * width, width)), times);
    right = chosen < drafted && branch.tokens.back() == row.fed[chosen + 1];
    ++chosen;
  }
  const uint32_t accepted = chosen - 1;
  ++sequence.speculation.steps;
  sequence.speculation.drafted_tokens += drafted;
  sequence.speculation.accepted_tokens += accepted;
  counters_.drafted_tokens += drafted;
  counters_.accepted_tokens += accepted;
  if (branch.ended || !sequence.failure.ok()) return;
  branch.drafts->record.Observe(row.evidence, drafted, accepted);
  // What a wrong draft left behind the last position is masked as long as it is
  // finite.
  for (uint32_t i = chosen; i < row.tokens; ++i) {
    if (std::isfinite(logits[i * width])) continue;
    sequence.spec.draft_tokens = 0;
    sequence.recompute = true;
  }
}

}  // namespace baton::engine
