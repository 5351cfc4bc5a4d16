// SPDX-License-Identifier: Apache-2.0
// One stream to one router: a worker's registration while it lasts.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/engine/engine.h"
#include "common/worker/outbox.h"

namespace baton::worker {

// Takes what a router sends. Called on gRPC's threads; must not block.
class AssignSink {
 public:
  virtual ~AssignSink() = default;
  // Not OK: the sequence is refused with it. Otherwise the engine has it.
  virtual absl::Status Assign(uint64_t owner, const v1::Assign& assign) = 0;
  // All of it, or one of its choices.
  virtual void Cancel(engine::SequenceRef ref, std::optional<uint32_t> choice) = 0;
};

// Sends Hello when the connection stands, then what it is given, one write at
// a time; a router that does not read is broken off before memory fills.
//
// Thread-safe. Lives until gRPC is done with it, whoever else lets go earlier.
class AttachStream final : private grpc::ClientBidiReactor<v1::WorkerMessage, v1::RouterMessage> {
 public:
  enum class Phase : uint8_t { kConnecting, kGreeted, kAttached, kDone };

  struct State {
    Phase phase = Phase::kConnecting;
    v1::Welcome welcome;  // from kAttached on
    absl::Status status;  // at kDone
  };

  // `owner` names the stream in the engine and is never used again. `changed`
  // is called whenever state() changes, on gRPC's threads. `sink` must live
  // until kDone.
  static std::shared_ptr<AttachStream> Make(uint64_t owner, AssignSink* sink,
                                            std::function<void()> changed);

  // Begins; waits for the connection as long as it takes. Call it once.
  void Start(v1::Registry::Stub* stub, v1::Hello hello);

  uint64_t owner() const { return owner_; }
  State state() const;

  void Push(v1::StepOutput step);
  void SetHeartbeat(v1::Heartbeat heartbeat);
  // Breaks the stream when the router owes a Welcome or a read for too long.
  void CheckStalled(absl::Time now);
  // Writes what waits, then closes the worker's side; kDone follows.
  void Finish();
  // Ends the stream with `reason`; kDone follows at once.
  void Break(const absl::Status& reason);

 private:
  AttachStream(uint64_t owner, AssignSink* sink, std::function<void()> changed);

  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void Handle(const v1::RouterMessage& message);
  void HandleWelcome(const v1::Welcome& welcome);
  void HandleAssign(const v1::Assign& assign);
  void BreakLocked(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t owner_;
  AssignSink* const sink_;
  const std::function<void()> changed_;
  grpc::ClientContext context_;
  v1::RouterMessage incoming_;  // one read at a time
  v1::WorkerMessage outgoing_;  // one write at a time

  mutable absl::Mutex mutex_;
  std::shared_ptr<AttachStream> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  State state_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> broken_ ABSL_GUARDED_BY(mutex_);  // our own reason to end
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint64_t> live_ ABSL_GUARDED_BY(mutex_);  // sequence keys
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time waiting_since_ ABSL_GUARDED_BY(mutex_);  // for a Welcome, or for the write
};

}  // namespace baton::worker
