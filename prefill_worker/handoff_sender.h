// SPDX-License-Identifier: Apache-2.0
// Pushes the KV of computed prompts to decode workers.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/engine/engine.h"
#include "common/transport/kv_transport.h"
#include "common/worker/handoff_end.h"
#include "common/worker/worker_metrics.h"

namespace baton::prefill_worker {

// One writer per sequence: opened when the first chunk starts, fed as chunks
// are done, committed after token 0. The engine hears HandoffDone when the
// writer reads no block any more, whichever way it ended.
//
// Thread safety: the engine's thread drives it, the transport's thread answers.
class HandoffSender final : public engine::HandoffSender, public worker::HandoffEnd {
 public:
  // Makes the transport's end; tests and fault flags give another.
  using MakeKvSender = std::function<absl::StatusOr<std::unique_ptr<transport::KvSender>>(
      const transport::SenderOptions&, const kv::KvLayout&)>;

  explicit HandoffSender(MakeKvSender make = transport::MakeSender);
  ~HandoffSender() override;

  // worker::HandoffEnd.
  absl::StatusOr<engine::HandoffSender*> Prepare(const Context& context) override;
  absl::Status Start(engine::Engine* engine) override;
  void Describe(v1::Hello* hello) const override;
  absl::Status Submit(engine::SequenceSpec spec, const v1::Assign& assign) override;
  void Ended(engine::SequenceRef ref) override;
  void Expire(absl::Time /*now*/) override {}  // a writer has its own deadline
  void Stop() override {}                      // the engine aborts what runs when it goes

  // engine::HandoffSender.
  void Begin(const engine::SequenceSpec& spec) override;
  void BlocksReady(engine::SequenceRef ref, uint32_t first_block,
                   std::vector<kv::BlockId> blocks) override;
  void Commit(engine::SequenceRef ref, const engine::HandoffState& state) override;
  void Abort(engine::SequenceRef ref, const absl::Status& reason) override;

 private:
  struct Transfer;
  using TransferPtr = std::shared_ptr<Transfer>;

  TransferPtr Find(engine::SequenceRef ref);
  void BringToHost(const std::vector<std::span<const std::byte>>& places,
                   std::function<void()> done);
  void Granted(const TransferPtr& transfer, const absl::Status& status);
  // One of the writer's calls has ended.
  void CallDone(const TransferPtr& transfer, const absl::Status& status, bool committed);
  // Keeps the first failure; the engine aborts what is not closed yet.
  void NoteFailure(const TransferPtr& transfer, const absl::Status& status);
  void FinishIfIdle(const TransferPtr& transfer);

  const MakeKvSender make_;
  absl::Duration timeout_;
  transport::SenderOptions options_;
  kv::KvLayout layout_;
  engine::Engine* engine_ = nullptr;
  std::unique_ptr<worker::HandoffMetrics> metrics_;
  std::unique_ptr<transport::KvSender> sender_;

  absl::Mutex mutex_;
  // Of every sequence that was submitted and has not ended.
  absl::flat_hash_map<engine::SequenceRef, std::vector<transport::Endpoint>> routes_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<engine::SequenceRef, TransferPtr> transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::prefill_worker
