// SPDX-License-Identifier: Apache-2.0
// Keeps the outputs of a sequence to its constraint. Where a text stands follows
// from its tokens alone, so it needs nothing from a hand-off or a preemption.
#include <algorithm>
#include <span>

#include "common/base/status_macros.h"
#include "common/engine/impl.h"

namespace baton::engine {

absl::StatusOr<std::span<const uint64_t>> Engine::Impl::AllowedTokens(const Sequence& sequence,
                                                                      Branch& branch) {
  const SequenceSpec& spec = sequence.spec;
  if (spec.constraint == nullptr) return std::span<const uint64_t>();
  const uint32_t outputs = sequence.outputs(branch);
  uint32_t left = spec.max_tokens - outputs;
  const PhaseSpec& phase = sequence.phase_of(branch);
  if (sequence.in_last_phase(branch) && phase.max_tokens > 0) {
    left = std::min(left, phase.max_tokens - (outputs - branch.phase_begin));
  }
  const grammar::StepRequest request{
      .outputs = std::span(branch.tokens).subspan(sequence.prompt_tokens),
      .tokens_left = left,
      .end_tokens = spec.stop_tokens};
  BATON_RETURN_IF_ERROR(spec.constraint->FillMask(request, &branch.cursor, &allowed_));
  return std::span<const uint64_t>(allowed_);
}

// Then no end token is needed. Otherwise the mask of the token behind them is
// made while the model runs.
bool Engine::Impl::AreComplete(const Sequence& sequence, std::span<const TokenId> outputs,
                               grammar::Cursor cursor) {
  const SequenceSpec& spec = sequence.spec;
  if (spec.constraint == nullptr) return false;
  grammar::Matcher::Standing standing;
  // An output that does not match is told with the next token's mask.
  if (!spec.constraint->Follow(outputs, &cursor, &standing).ok()) return false;
  if (standing.ended) return outputs.size() >= spec.sampling.min_tokens;
  // Of beams most candidates come to nothing.
  if (!sequence.search) mask_ahead_.Post(spec.constraint, cursor);
  return false;
}

bool Engine::Impl::CompletesText(const Sequence& sequence, const Branch& branch, TokenId token) {
  if (sequence.spec.constraint == nullptr) return false;
  std::vector<TokenId> outputs(branch.tokens.begin() + sequence.prompt_tokens, branch.tokens.end());
  outputs.push_back(token);
  return AreComplete(sequence, outputs, branch.cursor);
}

}  // namespace baton::engine
