// SPDX-License-Identifier: Apache-2.0
// Sequences coming in, and being called off.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/engine/impl.h"
#include "common/kv/layout.h"

namespace baton::engine {
namespace {

constexpr uint32_t kMostChoices = 32;
constexpr size_t kMostPhases = 8;

// Positions whose KV a branch needs here; the last token's is never computed.
uint64_t PositionsOf(const SequenceSpec& spec) {
  const uint64_t prompt = spec.prompt.size();
  return spec.role == Role::kPrefill ? prompt : prompt + spec.max_tokens - 1;
}

uint64_t BlocksOf(const SequenceSpec& spec) {
  const uint64_t prompt = spec.prompt.size(), positions = PositionsOf(spec);
  const uint32_t width = spec.role == Role::kPrefill ? 1 : spec.width();
  // A hand-off brings what is in sight alone.
  const uint64_t together = spec.role == Role::kDecode ? 0 : prompt + 1;
  if (width == 1) return kv::MostBlocks(spec.window, together, positions);
  const uint64_t all = kv::BlocksForBranches(prompt, positions - prompt, width);
  if (!spec.window.limited()) return all;
  return std::min(all, width * kv::MostBlocks(spec.window, together, positions));
}

absl::Status CancelReason(absl::Status reason) {
  return reason.ok() ? absl::CancelledError("cancelled") : std::move(reason);
}

}  // namespace

void Engine::Impl::PostSubmit(SequenceSpec spec) {
  // A step may take long: what comes meanwhile is bounded here.
  const uint32_t bound = options_.max_waiting + options_.max_sequences;
  if (posted_submits_.fetch_add(1) >= bound) {
    posted_submits_.fetch_sub(1);
    Post([this, ref = spec.ref, bound] {
      Refuse(ref, absl::ResourceExhaustedError(
                      absl::StrCat(bound, " sequences are waiting to be looked at")));
    });
    return;
  }
  Post([this, spec = std::move(spec)]() mutable {
    posted_submits_.fetch_sub(1);
    Submit(std::move(spec));
  });
}

void Engine::Impl::Submit(SequenceSpec spec) {
  absl::Status status = CheckSpec(spec);
  if (status.ok()) status = CheckRoom(spec);
  if (!status.ok()) return Refuse(spec.ref, std::move(status));
  if (spec.window.limited()) spec.prefix_cache = false;
  if (spec.phases.empty()) spec.phases.push_back({.sampling = spec.sampling, .beam = spec.beam});
  if (spec.constraint != nullptr) mask_ahead_.Post(spec.constraint, {});
  policy_->Join(spec.tenant);
  Sequence& sequence = table_.Add(std::move(spec), absl::Now());
  // What the first position here does not see is neither sent nor gets a block.
  if (sequence.spec.role == Role::kDecode) {
    sequence.trunk().dropped_end = sequence.spec.window.FirstBlock(sequence.prompt_tokens);
  }
}

void Engine::Impl::Refuse(const SequenceRef& ref, absl::Status status) {
  EndOutput end;
  end.ref = ref;
  end.status = std::move(status);
  output_.ends.push_back(std::move(end));
}

absl::Status Engine::Impl::CheckSpec(const SequenceSpec& spec) const {
  const model::ModelInfo& info = model_->info();
  BATON_RETURN_IF_ERROR(sampling::Validate(spec.sampling));
  BATON_RETURN_IF_ERROR(CheckPhases(spec));
  if (spec.prompt.empty()) return absl::InvalidArgumentError("the prompt is empty");
  if (spec.max_tokens == 0)
    return absl::InvalidArgumentError("max_tokens is 0; it must be at least 1");
  const uint64_t positions = uint64_t{spec.prompt.size()} + spec.max_tokens - 1;
  if (positions > info.context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", spec.prompt.size(), " tokens and max_tokens ", spec.max_tokens,
                     " go beyond the context of ", info.context_tokens, " tokens"));
  }
  const auto outside = std::find_if(spec.prompt.begin(), spec.prompt.end(),
                                    [&](TokenId token) { return token >= info.vocabulary_size; });
  if (outside != spec.prompt.end()) {
    return absl::InvalidArgumentError(absl::StrCat("prompt token ", outside - spec.prompt.begin(),
                                                   " is ", *outside, "; the vocabulary has ",
                                                   info.vocabulary_size, " tokens"));
  }
  BATON_RETURN_IF_ERROR(kv::CheckWindow(spec.window));
  if (spec.window.limited() && !(info.windows && options_.windows)) {
    return absl::InvalidArgumentError(absl::StrCat("window is ", spec.window.tokens, "; ",
                                                   info.windows ? "this worker" : "this model",
                                                   " takes no sequences with a window"));
  }
  if (spec.priority < sched::kLowestPriority || spec.priority > sched::kHighestPriority) {
    return absl::InvalidArgumentError(absl::StrCat("priority is ", spec.priority, "; it must be ",
                                                   sched::kLowestPriority, " to ",
                                                   sched::kHighestPriority));
  }
  if (spec.role == Role::kPrefill && sender_ == nullptr) {
    return absl::InvalidArgumentError("this worker hands nothing over");
  }
  return absl::OkStatus();
}

// What a router has made sure of.
absl::Status Engine::Impl::CheckPhases(const SequenceSpec& spec) const {
  const auto check_beam = [&](const std::optional<sampling::BeamParams>& beam) {
    if (!beam) return absl::OkStatus();
    if (const auto bad = sampling::FindBadParam(*beam)) {
      return absl::InvalidArgumentError(absl::StrCat("beam.", bad->field, " ", bad->problem));
    }
    if (spec.choices <= beam->width) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("choices is ", spec.choices, "; beam.width is ", beam->width));
  };
  if (spec.choices == 0 || spec.choices > kMostChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("choices is ", spec.choices, "; it must be 1 to ", kMostChoices));
  }
  BATON_RETURN_IF_ERROR(check_beam(spec.beam));
  if (spec.phases.size() > kMostPhases) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.phases.size(), " phases; the limit is ", kMostPhases));
  }
  for (size_t i = 0; i < spec.phases.size(); ++i) {
    const PhaseSpec& phase = spec.phases[i];
    BATON_RETURN_IF_ERROR(sampling::Validate(phase.sampling));
    BATON_RETURN_IF_ERROR(check_beam(phase.beam));
    const bool last = i + 1 == spec.phases.size();
    if (phase.beam && (spec.choices > 1 || (!last && spec.window.limited()))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "phase ", i, " has beams, which ",
          spec.choices > 1 ? "one choice alone" : "no answer with a window", " may go on from"));
    }
    if (!last && phase.max_tokens == 0 && phase.until_tokens.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("phase ", i, " never ends"));
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::CheckRoom(const SequenceSpec& spec) const {
  if (draining_) return absl::UnavailableError("the worker is draining");
  if (table_.Find(spec.ref) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("sequence key ", spec.ref.key, " is in use"));
  }
  const uint64_t blocks = BlocksOf(spec);
  const uint32_t width = spec.role == Role::kPrefill ? 1 : spec.width();
  if (blocks > pool_.capacity()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the sequence needs KV for ", width > 1 ? absl::StrCat(width, " times ") : "",
                     PositionsOf(spec), " tokens, which is ", blocks, " blocks; the pool has ",
                     pool_.capacity()));
  }
  if (width > options_.max_sequences) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the sequence has ", width, " choices or beams; at most ",
                     options_.max_sequences, " sequences run at once"));
  }
  const uint32_t waiting = table_.Count([](const Sequence& s) { return s.waiting(); });
  if (waiting >= options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting, " sequences wait already, the limit is ", options_.max_waiting));
  }
  return absl::OkStatus();
}

void Engine::Impl::Cancel(SequenceRef ref, absl::Status reason) {
  Sequence* sequence = table_.Find(ref);
  if (sequence != nullptr) End(*sequence, CancelReason(std::move(reason)));
}

void Engine::Impl::CancelChoice(SequenceRef ref, uint32_t choice, absl::Status reason) {
  Sequence* sequence = table_.Find(ref);
  if (sequence == nullptr || sequence->state == State::kEnding) return;
  // A prefill worker has nothing of it but its first token.
  if (sequence->spec.role == Role::kPrefill || sequence->search) return;
  sequence->cancelled.insert(choice);
  const bool any = !sequence->forked
                       ? sequence->cancelled.size() < sequence->spec.choices
                       : std::any_of(sequence->branches.begin(), sequence->branches.end(),
                                     [&](const Branch& branch) {
                                       return !sequence->cancelled.contains(branch.choice);
                                     });
  if (!any) return End(*sequence, CancelReason(std::move(reason)));
  // Otherwise when it goes on.
  if (sequence->state != State::kDecoding) return;
  DropCancelled(*sequence);
  Settle(*sequence);
}

void Engine::Impl::CancelOwner(uint64_t owner, const absl::Status& reason) {
  for (Sequence* sequence : table_.Select(
           [owner](const Sequence& candidate) { return candidate.spec.ref.owner == owner; })) {
    End(*sequence, CancelReason(reason));
  }
}

void Engine::Impl::Drain(std::function<void()> drained) {
  draining_ = true;
  drained_ = std::move(drained);
}

}  // namespace baton::engine
