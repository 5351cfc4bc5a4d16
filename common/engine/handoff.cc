// SPDX-License-Identifier: Apache-2.0
// KV leaving (kPrefill) and arriving (kDecode).
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {

// Sends the blocks that the last chunk completed. The prompt's last block may
// be partly filled, and goes only after the last chunk.
void Engine::Impl::SendReadyBlocks(Sequence& sequence) {
  if (sequence.spec.role != Role::kPrefill) return;
  const uint32_t first = sequence.pin_end;
  const uint32_t ready = sequence.computed >= sequence.prompt_tokens
                             ? static_cast<uint32_t>(sequence.blocks.size())
                             : sequence.computed / kv::kBlockTokens;
  if (ready == first) return;
  Pin(sequence, ready);
  sender_->BlocksReady(sequence.spec.ref, first,
                       {sequence.blocks.begin() + first, sequence.blocks.begin() + ready});
}

void Engine::Impl::CommitHandoffs() {
  for (Sequence* sequence : std::exchange(uncommitted_, {})) {
    SendReadyBlocks(*sequence);
    ReleaseBlocks(*sequence);  // the pins stay
    sequence->committed = true;
    sender_->Commit(sequence->spec.ref, {sequence->tokens.back(), sequence->outputs()});
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
  if (status.ok() && !sequence.committed) {
    status = absl::InternalError("the hand-off ended before its commit");
  }
  sequence.handed_off = status.ok();
  if (sequence.state == State::kEnding) return Retire(sequence);
  End(sequence, std::move(status));
}

void Engine::Impl::Reserve(SequenceRef ref, uint32_t prompt_tokens, Granted granted) {
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
      Reservation{first, {sequence.blocks.begin() + first, sequence.blocks.begin() + end}});
}

void Engine::Impl::Activate(SequenceRef ref, const HandoffState& state,
                            const std::function<void(absl::Status)>& accepted) {
  Sequence* found = table_.Find(ref);
  if (found == nullptr || found->spec.role != Role::kDecode || !found->writing) {
    return accepted(absl::NotFoundError("no reservation is open for this hand-off"));
  }
  Sequence& sequence = *found;
  sequence.writing = false;
  arena_->AfterHostWrites(std::span(sequence.blocks)
                              .subspan(sequence.pin_begin, sequence.pin_end - sequence.pin_begin));
  Unpin(sequence);
  if (sequence.state == State::kEnding) {
    accepted(absl::NotFoundError(
        absl::StrCat("the sequence has ended: ", sequence.end_status.message())));
    return Retire(sequence);
  }
  if (state.drawn != 1 || state.first_token >= model_->info().vocabulary_size) {
    const auto refusal = absl::InvalidArgumentError(
        absl::StrCat("a hand-off with ", state.drawn, " outputs, the last of them token ",
                     state.first_token, ", cannot be taken over"));
    accepted(refusal);
    return End(sequence, refusal);
  }
  sequence.computed = sequence.prompt_tokens;
  sequence.started = true;
  sequence.tokens.push_back(state.first_token);
  sequence.state = State::kDecoding;
  KeepPrefix(sequence);
  DropOutOfSight(sequence);
  accepted(absl::OkStatus());
  // The other end keeps such a sequence; taken over, it has nothing to do.
  if (const auto reason = FinishOf(sequence)) End(sequence, absl::OkStatus(), *reason);
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
  End(sequence, std::move(reason));
}

void Engine::Impl::SetReservationCancelled(std::function<void(SequenceRef)> callback) {
  reservation_cancelled_ = std::move(callback);
}

}  // namespace baton::engine
