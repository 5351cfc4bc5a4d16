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

}  // namespace

// Not in steps with prompts: these are long anyway, and the rows of their chunks
// are needed for sure.
void Engine::Impl::AddDrafts(std::vector<Row>& rows) {
  const bool decodes = std::all_of(rows.begin(), rows.end(), [](const Row& row) {
    return row.sampled && row.sequence->state == State::kDecoding;
  });
  if (!decodes) return;
  const double price = PriceOfRow(rows);
  uint32_t room =
      std::min(kMostDrafts, limits_.max_step_tokens - static_cast<uint32_t>(rows.size()));
  for (Row& row : rows) {
    if (row.sequence->search || row.sequence->spec.draft_tokens == 0) continue;
    AddDraft(row, price, room);
    room -= row.tokens - 1;
  }
}

// The time of one more row over the time that the step takes per token.
double Engine::Impl::PriceOfRow(std::span<const Row> rows) const {
  sched::StepShape shape;
  for (const Row& row : rows) shape.AddRow(row.sequence->attended(row.of()));
  const double step = absl::ToDoubleSeconds(costs_.costs().Step(shape));
  if (step <= 0) return kLeastPrice;
  return std::max(kLeastPrice, costs_.costs().row * static_cast<double>(rows.size()) / step);
}

void Engine::Impl::AddDraft(Row& row, double price, uint32_t room) {
  Sequence& sequence = *row.sequence;
  Branch& branch = sequence.branches[row.branch];
  // Behind the last token there is none to come.
  const uint32_t left = sequence.spec.max_tokens - sequence.outputs(branch) - 1;
  const uint32_t most = std::min({sequence.spec.draft_tokens, left, room});
  if (!branch.drafts) branch.drafts.emplace();
  Branch::Drafts& drafts = *branch.drafts;
  drafts.lookup.Update(branch.tokens);
  const speculation::Draft draft = drafts.lookup.Propose(branch.tokens, most);
  if (draft.tokens.empty()) return;
  uint32_t length = speculation::DraftLength(drafts.record.Probability(draft.matched), price,
                                             static_cast<uint32_t>(draft.tokens.size()));
  if (length == 0) return drafts.record.Skip(draft.matched);
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
  row.matched = draft.matched;
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
  branch.drafts->record.Observe(row.matched, drafted, accepted);
  // What a wrong draft left behind the last position is masked as long as it is
  // finite.
  for (uint32_t i = chosen; i < row.tokens; ++i) {
    if (std::isfinite(logits[i * width])) continue;
    sequence.spec.draft_tokens = 0;
    sequence.recompute = true;
  }
}

}  // namespace baton::engine
