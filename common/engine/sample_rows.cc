// SPDX-License-Identifier: Apache-2.0
// The tokens of many rows at once: what a step has left to do on one core
// otherwise, while the others wait for the next.
#include <vector>

#include "common/engine/impl.h"
#include "common/sampling/sampler.h"

namespace baton::engine {
namespace {

// A row whose token can be chosen before its neighbours are committed.
struct Choice {
  std::optional<absl::StatusOr<sampling::Sample>>* sample;
  std::span<const float> logits;
  sampling::Position position;
  const sampling::Params* params;
  std::vector<uint64_t> allowed;  // what the position's mask refers to
};

}  // namespace

// Those of one position each, of which nothing but the token is told.
bool Engine::Impl::ModelChooses(const Row& row) const {
  if (queue_ == nullptr || !row.sampled || row.scored || row.drafted()) return false;
  const Sequence& sequence = *row.sequence;
  const PhaseSpec& phase = sequence.phase_of(row.of());
  if (sequence.search || phase.beam || (!sequence.forked && sequence.spec.choices > 1)) {
    return false;
  }
  return queue_->Chooses(phase.sampling);
}

bool Engine::Impl::LetModelChoose(const Row& row, model::TokenChoice& choice,
                                  std::vector<uint64_t>& mask) {
  if (!ModelChooses(row)) return false;
  Sequence& sequence = *row.sequence;
  Branch& branch = sequence.branches[row.branch];
  const auto position = PositionOf(sequence, branch, sequence.forked ? branch.choice : 0);
  if (!position.ok()) return false;  // said when the row is committed
  choice = {&sequence.phase_of(branch).sampling, *position};
  mask.assign(position->allowed.begin(), position->allowed.end());
  choice.position.allowed = mask;
  if (row.follows) ++choice.position.output_index;
  return true;
}

// Left to CommitRow are rows of prompts that fork or are scored, beams and
// drafts, where one token decides about others. Masks of constrained rows are made
// here, one after another, and laid over the logits by all threads.
void Engine::Impl::SampleRows(Flight& step) {
  if (step.rows.size() < 2) return;
  const size_t width = model_->info().vocabulary_size;
  std::span<const float> logits = step.logits;
  std::vector<Choice> choices;
  choices.reserve(step.rows.size());
  for (Row& row : step.rows) {
    const auto own = logits.first(row.logit_rows() * width);
    logits = logits.subspan(own.size());
    Sequence& sequence = *row.sequence;
    if (!row.sampled || row.by_model || row.scored || row.drafted() || !sequence.forked ||
        sequence.search) {
      continue;
    }
    Branch& branch = sequence.branches[row.branch];
    const auto position = PositionOf(sequence, branch, branch.choice);
    if (!position.ok()) continue;
    choices.push_back({&row.sample,
                       own,
                       *position,
                       &sequence.phase_of(branch).sampling,
                       {position->allowed.begin(), position->allowed.end()}});
    choices.back().position.allowed = choices.back().allowed;
  }
  if (choices.size() < 2) return;
  const uint32_t usable = model_->info().usable_vocabulary;
  model_->ForEach(static_cast<uint32_t>(choices.size()), [&](uint32_t i) {
    const Choice& choice = choices[i];
    choice.sample->emplace(
        sampling::SampleToken(choice.logits, usable, choice.position, *choice.params));
  });
}

}  // namespace baton::engine
