// SPDX-License-Identifier: Apache-2.0
// KV leaving (kPrefill) and arriving (kDecode).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {

// Sends the blocks that the last chunk completed, but for those that nothing
// behind the prompt sees. The prompt's last block may
// be partly filled, and goes only after the last chunk.
void Engine::Impl::SendReadyBlocks(Sequence& sequence) {
  if (sequence.spec.role != Role::kPrefill) return;
  const uint32_t first = sequence.pin_end;
  const Branch& trunk = sequence.trunk();
  const uint32_t ready = trunk.computed >= sequence.prompt_tokens
                             ? static_cast<uint32_t>(trunk.blocks.size())
                             : trunk.computed / kv::kBlockTokens;
  if (ready == first) return;
  Pin(sequence, ready);
  std::vector<kv::BlockId> blocks = sequence.moving_blocks(first, ready);
  if (blocks.empty()) return;
  sender_->BlocksReady(sequence.spec.ref, sequence.moved_before(first), std::move(blocks));
}

void Engine::Impl::CommitHandoffs() {
  for (Sequence* sequence : std::exchange(uncommitted_, {})) {
    SendReadyBlocks(*sequence);
    ReleaseBlocks(*sequence);  // the pins stay
    sequence->committed = true;
    sender_->Commit(sequence->spec.ref, sequence->handoff);
  }
}

void Engine::Impl::HandoffDone(SequenceRef ref, absl::Status status, std::string transport,
                               uint64_t bytes) {
  Sequence* found = table_.Find(ref);
  if (found == nullptr || found->spec.role != Role::kPrefill || !found->writing) {
    LogWarning("end of a hand-off that is not open", {{"sequence_key", ref.key}});
    return;
  }
  Sequence& sequence = *found;
  sequence.writing = false;
  Unpin(sequence);
  sequence.transport = std::move(transport);
  sequence.handoff_bytes = bytes;
  counters_.handoff_bytes += bytes;
  if (status.ok() && !sequence.committed) {
    status = absl::InternalError("the hand-off ended before its commit");
  }
  sequence.handed_off = status.ok();
  if (sequence.state == State::kEnding) return Retire(sequence);
  End(sequence, status);
}

void Engine::Impl::Reserve(SequenceRef ref, uint32_t prompt_tokens, kv::KvOrigin origin,
                           Granted granted) {
  Sequence* sequence = table_.Find(ref);
  if (sequence == nullptr || sequence->spec.role != Role::kDecode ||
      sequence->state == State::kEnding) {
    return granted(absl::NotFoundError("no sequence waits for this hand-off"));
  }
  if (sequence->state != State::kExpected) {
    return granted(absl::FailedPreconditionError("the hand-off has reserved its blocks already"));
  }
  if (prompt_tokens != sequence->prompt_tokens) {
    return granted(absl::FailedPreconditionError(absl::StrCat("the hand-off is of ", prompt_tokens,
                                                              " prompt tokens, the sequence has ",
                                                              sequence->prompt_tokens)));
  }
  if (origin != kv::KvOrigin::kOwn) {
    // Routers know of converted KV where the workers' types differ, not where it was so
    // on the wire alone.
    sequence->spec.swap_only = true;
    sequence->spec.prefix_cache = false;
  }
  sequence->state = State::kReserving;
  sequence->queued_at = absl::Now();
  sequence->granted = std::move(granted);
}

// The sequence got its blocks: lets the hand-off write into the prompt's.
void Engine::Impl::Grant(Sequence& sequence) {
  const uint32_t first = sequence.cached_tokens / kv::kBlockTokens;
  const uint32_t end = kv::BlocksForTokens(sequence.prompt_tokens);
  sequence.pin_begin = sequence.pin_end = first;
  Pin(sequence, end);
  sequence.writing = true;
  sequence.state = State::kReserved;
  std::exchange(sequence.granted, nullptr)(
      Reservation{sequence.moved_before(first), sequence.moving_blocks(first, end)});
}

void Engine::Impl::Activate(SequenceRef ref, const HandoffState& state,
                            const std::function<void(absl::Status)>& accepted,
                            const std::vector<bool>& in_pool) {
  Sequence* found = table_.Find(ref);
  if (found == nullptr || found->spec.role != Role::kDecode || !found->writing) {
    return accepted(absl::NotFoundError("no reservation is open for this hand-off"));
  }
  Sequence& sequence = *found;
  sequence.writing = false;
  arena_->AfterLanding(sequence.moving_blocks(sequence.pin_begin, sequence.pin_end), in_pool);
  Unpin(sequence);
  if (sequence.state == State::kEnding) {
    accepted(absl::NotFoundError(
        absl::StrCat("the sequence has ended: ", sequence.end_status.message())));
    return Retire(sequence);
  }
  if (absl::Status fits = CheckState(sequence, state); !fits.ok()) {
    accepted(fits);
    return End(sequence, fits);
  }
  Branch& trunk = sequence.trunk();
  trunk.computed = sequence.prompt_tokens;
  sequence.started = true;
  sequence.state = State::kDecoding;
  KeepPrefix(sequence, trunk);
  DropOutOfSight(sequence, trunk);
  accepted(absl::OkStatus());
  // Choices that have ended with their first token are not taken up here.
  if (state.drawn > 0) {
    Fork(sequence, state.first_tokens);
  } else {
    StartSearch(sequence, trunk);
    AdvanceSearch(sequence, {&state.search, 1}, {});
  }
  Settle(sequence);
}

absl::Status Engine::Impl::CheckState(const Sequence& sequence, const HandoffState& state) const {
  const bool search = sequence.spec.phases.front().beam.has_value();
  const size_t choices = search ? 0 : sequence.spec.choices;
  const auto unknown = [this](TokenId token) { return token >= model_->info().vocabulary_size; };
  const auto& candidates = state.search.candidates;
  if (state.drawn == (search ? 0u : 1u) && state.first_tokens.size() == choices &&
      std::none_of(state.first_tokens.begin(), state.first_tokens.end(), unknown) &&
      search != candidates.empty() &&
      std::none_of(candidates.begin(), candidates.end(),
                   [&](const auto& candidate) { return unknown(candidate.token); })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a hand-off with ", state.drawn, " outputs of ", state.first_tokens.size(), " choices",
      state.first_tokens.empty() ? ""
                                 : absl::StrCat(" (", absl::StrJoin(state.first_tokens, ", "), ")"),
      " and ", candidates.size(), " candidates cannot be taken over for ", choices, " choices",
      search ? " and a search" : ""));
}

void Engine::Impl::ReleaseReservation(SequenceRef ref, absl::Status reason) {
  Sequence* found = table_.Find(ref);
  if (found == nullptr || found->spec.role != Role::kDecode) return;
  Sequence& sequence = *found;
  if (sequence.state == State::kDecoding) return;  // taken over before
  sequence.writing = false;
  Unpin(sequence);
  if (sequence.state == State::kEnding) return Retire(sequence);
  if (reason.ok()) reason = absl::CancelledError("the hand-off was given up");
  End(sequence, reason);
}

void Engine::Impl::SetReservationCancelled(std::function<void(SequenceRef)> callback) {
  reservation_cancelled_ = std::move(callback);
}

}  // namespace baton::engine
