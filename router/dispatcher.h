// SPDX-License-Identifier: Apache-2.0
// The router's core: requests, queue and workers, and what happens to them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sched/policy.h"
#include "common/sched/step_costs.h"
#include "router/generation.h"
#include "router/links.h"
#include "router/pairing.h"
#include "router/request_queue.h"
#include "router/router_metrics.h"
#include "router/served_model.h"
#include "router/validation.h"
#include "router/worker_directory.h"

namespace baton::router {

struct DispatcherOptions {
  RequestQueue::Limits queue;
  // How long a request waits for a role of which no worker is attached, such
  // as one that restarts.
  absl::Duration pair_wait = absl::Seconds(1);
  absl::Duration heartbeat = absl::Milliseconds(250);
  absl::Duration lease = absl::Seconds(3);
  TransportRule transport = TransportRule::kAuto;
  bool mixed_pairs = false;  // of Need
  sched::PolicyOptions policy = {.name = "fcfs"};
  // See Need::local_stall.
  absl::Duration local_stall = absl::Milliseconds(20);
  std::string router_id;
};

struct Submission {
  RequestKey key = 0;
  ValidatedRequest request;
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<ResponseStream> out;
  absl::Time arrival, deadline;
};

// Life of a request: queued -> reserving (the decode worker was asked) ->
// running (the prefill worker has the prompt; or at once on the local path) ->
// ended. Every request ends exactly once: Finish on its stream, and
// CancelSequence to each worker that still has a part of it.
//
// Thread safety: none; DispatcherThread drives it. Time is an argument, so
// tests run it without a clock. Nothing here blocks.
class Dispatcher final {
 public:
  // `model` and `metrics` must outlive this.
  Dispatcher(DispatcherOptions options, ModelSlot* model, RouterMetrics* metrics);

  void Submit(Submission submission, absl::Time now);
  // The client is gone. No effect on a request that is unknown or has ended.
  void Cancel(RequestKey key, absl::Time now);

  void OpenLink(LinkId id, std::shared_ptr<WorkerLink> link, absl::Time now);
  void OnMessage(LinkId id, const v1::WorkerMessage& message, absl::Time now);
  // The worker's stream has ended.
  void CloseLink(LinkId id, absl::Time now);

  // Deadlines, leases, slow readers. Call when next_wake() has come.
  void Tick(absl::Time now);
  absl::Time next_wake() const { return next_wake_; }

  // New requests are refused from now on; the others go on.
  void Drain() { draining_ = true; }
  // Ends every request with UNAVAILABLE and every link.
  void EndAll(absl::Time now);
  bool idle() const { return requests_.empty(); }
  // A decode worker is attached, and the router takes requests.
  bool ready();
  void FillStatus(v1::GetClusterStatusResponse* status);

 private:
  enum class State : uint8_t { kQueued, kReserving, kRunning };

  struct Request {
    RequestKey key = 0;
    State state = State::kQueued;
    std::shared_ptr<const ValidatedRequest> spec;
    std::shared_ptr<const ServedModel> model;
    std::shared_ptr<ResponseStream> out;
    absl::Time arrival, deadline;
    absl::Time time_end = absl::InfiniteFuture();  // of its own time limit
    absl::Time started;                            // handed to workers
    std::optional<absl::Time> missing_since;       // no worker of a role, since then
    SequenceKey prefill_key = 0, decode_key = 0;
    std::vector<v1::HandoffEndpoint> endpoints;
    std::string handoff_key;
    bool foreign_kv = false;  // of Pairing
    std::unique_ptr<Generation> generation;
    // What the decode worker ended with, kept until the prefill worker's end.
    std::optional<v1::SequenceEnd> decode_end;
  };

  void Arm(absl::Time time) { next_wake_ = std::min(next_wake_, time); }
  void Pump(absl::Time now);
  // Tries to start one that waits. False: those behind it have to wait as well.
  bool TryStart(Request& request, absl::Time now);
  Need NeedOf(const Request& request) const;
  // Those that wait, in the order of the policy; what cannot be done in time is
  // ended first.
  std::vector<RequestKey> ServiceOrder(absl::Time now);
  sched::StepCosts FastestCosts() const;
  static sched::Job JobOf(const Request& request, const sched::StepCosts& costs);
  void Charge(const Request& request, absl::Time now);
  void Start(Request& request, const Pairing& pairing, absl::Time now);
  void SendAssign(Request& request, SequenceKey key, v1::Assign::Role role, absl::Time now);
  void Requeue(Request& request, absl::Time now);
  // Nothing more is wanted of the sequence, its end included.
  void CancelAssignment(SequenceKey key, absl::Time now);
  void SendCancel(LinkId worker, SequenceKey key, std::optional<uint32_t> choice, absl::Time now);
  // Takes tokens in; what they end is ended on the worker, too.
  void TakeTokens(Worker& worker, Request& request, const v1::SequenceTokens& tokens,
                  absl::Time now);
  void End(Request& request, const absl::Status& status, absl::Time now);
  void EndInTime(Request& request, absl::Time now);
  void SendEvents(Request& request, absl::Time now);

  void OnHello(Worker& worker, const v1::Hello& hello, absl::Time now);
  void OnAccepted(const v1::Accepted& accepted, absl::Time now);
  void OnStep(Worker& worker, const v1::StepOutput& step, absl::Time now);
  void OnSequenceEnd(const v1::SequenceEnd& end, absl::Time now);
  // Keeps the decode worker's end while the prefill worker's is to come.
  void HoldDecodeEnd(Request& request, const v1::SequenceEnd& end, absl::Time now);
  void ApplyEnd(Request& request, Source source, const v1::SequenceEnd& end, absl::Time now);
  void LoseWorker(LinkId id, const absl::Status& reason, absl::Time now);
  // The live request of a sequence that `worker` has; null when it has ended.
  Request* FindBySequence(const Worker& worker, SequenceKey key);
  void SetGauges();

  const DispatcherOptions options_;
  ModelSlot* const model_;
  RouterMetrics* const metrics_;
  std::map<RequestKey, Request> requests_;
  RequestQueue queue_;
  const std::unique_ptr<sched::Policy> policy_;
  WorkerDirectory directory_;
  absl::Duration handoff_ = absl::Milliseconds(5);  // as measured lately
  // Finished streams whose peer has not taken everything yet.
  std::vector<std::shared_ptr<ResponseStream>> lingering_;
  absl::Time next_wake_ = absl::InfiniteFuture();
  bool draining_ = false;
};

}  // namespace baton::router
