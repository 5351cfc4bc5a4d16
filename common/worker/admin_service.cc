// SPDX-License-Identifier: Apache-2.0
#include "common/worker/admin_service.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/status.h"

namespace baton::worker {
namespace {

// A dump holds steps up while it is made.
constexpr int kMostCalls = 4;

}  // namespace

struct AdminService::Watched {
  absl::Mutex mutex;
  engine::Engine* engine ABSL_GUARDED_BY(mutex) = nullptr;
  int calls ABSL_GUARDED_BY(mutex) = 0;
};

namespace {

// Ends a call exactly once: with what it is given, or when it goes.
template <typename Watched>
class DumpCall final {
 public:
  DumpCall(std::shared_ptr<Watched> watched, grpc::ServerUnaryReactor* reactor)
      : watched_(std::move(watched)), reactor_(reactor) {}
  DumpCall(DumpCall&& other) noexcept
      : watched_(std::move(other.watched_)), reactor_(std::exchange(other.reactor_, nullptr)) {}
  DumpCall& operator=(DumpCall&&) = delete;
  ~DumpCall() { Finish(absl::UnavailableError("the worker stops")); }

  void Finish(const absl::Status& status) {
    if (reactor_ == nullptr) return;
    {
      absl::MutexLock lock(&watched_->mutex);
      --watched_->calls;
    }
    std::exchange(reactor_, nullptr)->Finish(rpc::ToGrpc(status));
  }

 private:
  std::shared_ptr<Watched> watched_;
  grpc::ServerUnaryReactor* reactor_;
};

}  // namespace

v1::KvDump DumpMessage(const engine::KvDump& dump) {
  v1::KvDump message;
  message.set_taken_unix_us(absl::ToUnixMicros(dump.taken));
  message.set_step(dump.step);
  message.set_block_tokens(dump.block_tokens);
  message.set_block_bytes(dump.block_bytes);
  message.set_blocks_total(dump.blocks_total);
  message.set_blocks_free(dump.blocks_free);
  message.set_blocks_requests(dump.blocks_requests);
  message.set_blocks_transfers(dump.blocks_transfers);
  message.set_blocks_prefix_cache(dump.blocks_prefix_cache);
  message.set_blocks_reclaimable(dump.blocks_reclaimable);
  message.set_swapped_blocks(dump.swapped_blocks);
  for (const engine::KvDump::Owner& from : dump.owners) {
    v1::KvOwner* owner = message.add_owners();
    owner->set_request_id(from.request_id);
    owner->set_tenant(from.tenant);
    owner->set_state(std::string(from.state));
    owner->set_prompt_tokens(from.prompt_tokens);
    owner->set_branches(from.branches);
    owner->set_computed_tokens(from.computed_tokens);
    owner->set_blocks(from.blocks);
    owner->set_transfer_blocks(from.transfer_blocks);
    owner->set_swapped_blocks(from.swapped_blocks);
    owner->set_dropped_blocks(from.dropped_blocks);
    owner->set_sequence_key(from.key);
  }
  for (const engine::KvDump::Run& from : dump.runs) {
    v1::KvRun* run = message.add_runs();
    run->set_first(from.first);
    run->set_count(from.count);
    run->set_requests(from.requests);
    run->set_transfers(from.transfers);
    run->set_prefix_cache(from.prefix_cache);
    run->mutable_owners()->Add(from.owners.begin(), from.owners.end());
  }
  return message;
}

AdminService::AdminService(std::string worker_id, std::string role)
    : worker_id_(std::move(worker_id)),
      role_(std::move(role)),
      watched_(std::make_shared<Watched>()) {}

void AdminService::Watch(engine::Engine* engine) {
  absl::MutexLock lock(&watched_->mutex);
  watched_->engine = engine;
}

void AdminService::StopWatching() { Watch(nullptr); }

grpc::ServerUnaryReactor* AdminService::GetKvDump(grpc::CallbackServerContext* context,
                                                  const v1::GetKvDumpRequest*,
                                                  v1::KvDump* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status refusal;
  {
    // Held while it is posted: the engine lives as long as it is watched.
    absl::MutexLock lock(&watched_->mutex);
    if (watched_->engine == nullptr) {
      refusal = absl::UnavailableError("the engine has not started or has stopped");
    } else if (watched_->calls >= kMostCalls) {
      refusal = absl::ResourceExhaustedError(
          absl::StrCat(watched_->calls, " dumps are being made already"));
    } else {
      ++watched_->calls;
      watched_->engine->DumpKv([call = DumpCall<Watched>(watched_, reactor), response,
                                worker_id = worker_id_,
                                role = role_](const engine::KvDump& dump) mutable {
        *response = DumpMessage(dump);
        response->set_worker_id(worker_id);
        response->set_role(role);
        call.Finish(absl::OkStatus());
      });
    }
  }
  if (!refusal.ok()) reactor->Finish(rpc::ToGrpc(refusal));
  return reactor;
}

}  // namespace baton::worker
