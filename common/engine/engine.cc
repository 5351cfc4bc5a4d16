// SPDX-License-Identifier: Apache-2.0
// The public face: checks options, and posts everything else to the thread.
#include "common/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/engine/impl.h"

namespace baton::engine {
namespace {

absl::Status CheckOptions(const Options& options, const model::Model& model) {
  if (options.max_sequences == 0) return absl::InvalidArgumentError("max_sequences is 0");
  if (options.chunk_tokens == 0 || options.chunk_tokens % kv::kBlockTokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "chunk_tokens is ", options.chunk_tokens, "; it must be a multiple of ", kv::kBlockTokens));
  }
  // Every step has room for all rows and some of a prompt.
  if (options.max_sequences + kv::kBlockTokens > model.max_step_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_sequences is ", options.max_sequences, "; with ", kv::kBlockTokens,
                     " tokens of a prompt beside them that is more than the ",
                     model.max_step_tokens(), " tokens of a model step"));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t SequenceSpec::width() const {
  uint32_t width = choices;
  if (beam.has_value()) width = std::max(width, beam->width);
  for (const PhaseSpec& phase : phases) {
    if (phase.beam.has_value()) width = std::max(width, phase.beam->width);
  }
  return width;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<model::Model> model,
                                                       const Options& options, Listener* listener,
                                                       HandoffSender* sender) {
  BATON_RETURN_IF_ERROR(CheckOptions(options, *model));
  BATON_ASSIGN_OR_RETURN(kv::KvArena arena,
                         kv::KvArena::Create(model->kv_layout(), options.kv_blocks));
  BATON_RETURN_IF_ERROR(model->Attach(arena));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<sched::Policy> policy, sched::MakePolicy(options.policy));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<kv::SwapArea> swap,
                         kv::SwapArea::Create(model->kv_layout(), options.swap_bytes));
  std::unique_ptr<kv::BlockFile> block_file;
  if (!options.block_file.path.empty() && options.prefix_cache) {
    kv::BlockFile::Options file = options.block_file;
    file.most_tokens = model->info().context_tokens;
    BATON_ASSIGN_OR_RETURN(block_file, kv::BlockFile::Open(model->kv_layout(), file));
  }
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(
      std::move(model), options, std::make_unique<kv::KvArena>(std::move(arena)), std::move(swap),
      std::move(block_file), std::move(policy), listener, sender)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::Submit(SequenceSpec spec) { impl_->PostSubmit(std::move(spec)); }

void Engine::Cancel(SequenceRef ref, absl::Status reason) {
  impl_->Post([impl = impl_.get(), ref, reason = std::move(reason)]() mutable {
    impl->Cancel(ref, std::move(reason));
  });
}

void Engine::CancelChoice(SequenceRef ref, uint32_t choice, absl::Status reason) {
  impl_->Post([impl = impl_.get(), ref, choice, reason = std::move(reason)]() mutable {
    impl->CancelChoice(ref, choice, std::move(reason));
  });
}

void Engine::CancelOwner(uint64_t owner, absl::Status reason) {
  impl_->Post([impl = impl_.get(), owner, reason = std::move(reason)] {
    impl->CancelOwner(owner, reason);
  });
}

void Engine::HandoffDone(SequenceRef ref, absl::Status status, std::string transport,
                         uint64_t bytes) {
  impl_->Post([impl = impl_.get(), ref, status = std::move(status),
               transport = std::move(transport), bytes]() mutable {
    impl->HandoffDone(ref, std::move(status), std::move(transport), bytes);
  });
}

void Engine::Reserve(SequenceRef ref, uint32_t prompt_tokens, kv::KvOrigin origin,
                     Granted granted) {
  impl_->Post(
      [impl = impl_.get(), ref, prompt_tokens, origin, granted = std::move(granted)]() mutable {
        impl->Reserve(ref, prompt_tokens, origin, std::move(granted));
      });
}

void Engine::BringToHost(std::vector<kv::BlockId> blocks, std::function<void()> done) {
  impl_->Post([impl = impl_.get(), blocks = std::move(blocks), done = std::move(done)] {
    impl->arena().BeforeHostReads(blocks);
    done();
  });
}

void Engine::Activate(SequenceRef ref, const HandoffState& state,
                      std::function<void(absl::Status)> accepted, std::vector<bool> in_pool) {
  impl_->Post([impl = impl_.get(), ref, state, accepted = std::move(accepted),
               in_pool = std::move(in_pool)] { impl->Activate(ref, state, accepted, in_pool); });
}

void Engine::ReleaseReservation(SequenceRef ref, absl::Status reason) {
  impl_->Post([impl = impl_.get(), ref, reason = std::move(reason)]() mutable {
    impl->ReleaseReservation(ref, std::move(reason));
  });
}

void Engine::SetReservationCancelled(std::function<void(SequenceRef)> callback) {
  impl_->Post([impl = impl_.get(), callback = std::move(callback)]() mutable {
    impl->SetReservationCancelled(std::move(callback));
  });
}

void Engine::Trim(uint32_t keep) {
  impl_->Post([impl = impl_.get(), keep] { impl->Trim(keep); });
}

void Engine::DumpKv(absl::AnyInvocable<void(KvDump)> done) {
  impl_->Post([impl = impl_.get(), done = std::move(done)]() mutable { done(impl->DumpKv()); });
}

void Engine::Drain(std::function<void()> drained) {
  impl_->Post([impl = impl_.get(), drained = std::move(drained)]() mutable {
    impl->Drain(std::move(drained));
  });
}

Load Engine::load() const { return impl_->load(); }
const model::Model& Engine::model() const { return impl_->model(); }
const kv::KvArena& Engine::arena() const { return impl_->arena(); }
absl::Status Engine::CheckIntegrity() { return impl_->CheckIntegrity(); }

}  // namespace baton::engine
