// SPDX-License-Identifier: Apache-2.0
// Takes the KV of prompts that prefill workers computed.
#pragma once

#include <memory>
#include <optional>
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

namespace baton::decode_worker {

struct ReceiverFlags {
  std::string kv_listen = "127.0.0.1:0";
  std::string kv_advertise_host;
  std::string socket_dir;  // empty: a folder of this user under /tmp
  absl::Duration lease = absl::Seconds(10);
};

// Ties a hand-off's key to the sequence it is for, and the transport's grants
// to the engine's reservations. Blocks of a cancelled sequence are given back
// only when the transport says that it writes no more.
//
// Thread safety: any thread.
class HandoffReceiver final : public transport::KvLanding, public worker::HandoffEnd {
 public:
  explicit HandoffReceiver(ReceiverFlags flags);
  ~HandoffReceiver() override;

  // worker::HandoffEnd.
  absl::StatusOr<engine::HandoffSender*> Prepare(const Context& context) override;
  absl::Status Start(engine::Engine* engine) override;
  void Describe(v1::Hello* hello) const override;
  absl::Status Submit(engine::SequenceSpec spec, const v1::Assign& assign) override;
  void Ended(engine::SequenceRef ref) override;
  void Expire(absl::Time now) override;
  void Stop() override;

  // transport::KvLanding.
  void Reserve(const transport::ReserveRequest& request, Granted granted) override;
  void Committed(uint64_t landing_id, const transport::CommitState& state,
                 const std::vector<bool>& in_pool, transport::Done accepted) override;
  void Aborted(uint64_t landing_id, const absl::Status& reason) override;

 private:
  // A sequence whose KV has not landed yet.
  struct Expected {
    engine::SequenceRef ref;
    absl::Time give_up;
    bool foreign_kv = false;  // the router allows KV of other kernels
  };
  // Blocks that a writer may write into.
  struct Landing {
    engine::SequenceRef ref;
    absl::Time begun;
    uint64_t bytes = 0;
  };

  void Reserved(engine::SequenceRef ref,
                const absl::StatusOr<engine::Engine::Reservation>& reservation,
                const Granted& granted);
  void ReservationCancelled(engine::SequenceRef ref);
  // Takes the landing out of the book; nullopt when it is not there.
  std::optional<Landing> Take(uint64_t landing_id);
  void ForgetExpectedLocked(engine::SequenceRef ref) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ReceiverFlags flags_;
  transport::ReceiverOptions options_;
  kv::KvLayout layout_;
  std::vector<std::string> transports_;
  absl::Duration timeout_;
  std::unique_ptr<worker::HandoffMetrics> metrics_;
  engine::Engine* engine_ = nullptr;

  mutable absl::Mutex mutex_;
  std::unique_ptr<transport::KvReceiver> receiver_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_landing_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::string, Expected> expected_ ABSL_GUARDED_BY(mutex_);  // by key
  absl::flat_hash_map<engine::SequenceRef, std::string> keys_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Landing> landings_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<engine::SequenceRef, uint64_t> landing_of_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::decode_worker
