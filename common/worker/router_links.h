// SPDX-License-Identifier: Apache-2.0
// A worker's side of the registry: one link per router, one engine behind them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/engine/engine.h"
#include "common/prefix/journal.h"
#include "common/rpc/credentials.h"
#include "common/worker/assignment.h"
#include "common/worker/handoff_end.h"
#include "common/worker/router_link.h"
#include "common/worker/worker_metrics.h"

namespace baton::worker {

// Brings each engine output to the router that owns the sequence, and each
// router's work to the engine. Thread-safe.
class RouterLinks final : public engine::Listener, private AssignSink {
 public:
  // All must outlive it; `journal` is told to routers as it changes.
  RouterLinks(HandoffEnd* handoff, WorkerMetrics* metrics, const prefix::Journal* journal);
  ~RouterLinks() override;

  // Connects to every router. `engine` must live until Stop() has returned.
  // `attached` hears the number of attached routers whenever it changes.
  absl::Status Start(engine::Engine* engine, const std::vector<std::string>& routers,
                     const rpc::TlsOptions& tls, const AssignLimits& limits, v1::Hello hello,
                     std::function<void(int)> attached);

  // Heartbeats say from now on that the worker takes no new work.
  void SetDraining();
  // Ends everything that any router runs here with `reason`.
  void CancelAll(const absl::Status& reason);
  // Writes what waits and closes the streams.
  void Stop(absl::Duration patience);

  void OnStep(const engine::StepOutput& output) override;

 private:
  struct Attached {
    std::shared_ptr<AttachStream> stream;
    bool welcomed = false;
    uint64_t prefix_version = 0;  // of the journal, as told to the router
  };

  absl::Status Assign(uint64_t owner, const v1::Assign& assign) override;
  void Cancel(engine::SequenceRef ref, std::optional<uint32_t> choice) override;

  v1::Heartbeat MakeHeartbeat(uint64_t owner);
  void Opened(std::shared_ptr<AttachStream> stream);
  void Welcomed(uint64_t owner);
  void Closed(uint64_t owner);
  void TellAttached();
  // Tells every router what it does not know of the prefix cache yet.
  void TellPrefixes();
  std::shared_ptr<AttachStream> Find(uint64_t owner);

  HandoffEnd* const handoff_;
  WorkerMetrics* const metrics_;
  const prefix::Journal* const journal_;
  engine::Engine* engine_ = nullptr;
  AssignLimits limits_;
  v1::Hello hello_;
  std::function<void(int)> attached_;
  std::atomic<bool> draining_{false};
  std::vector<std::unique_ptr<RouterLink>> links_;

  absl::Mutex tell_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  // Held from reading the journal to pushing what it says: changes stay in order.
  absl::Mutex prefix_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Attached> streams_ ABSL_GUARDED_BY(mutex_);  // by owner
};

}  // namespace baton::worker
