// SPDX-License-Identifier: Apache-2.0
// What waits to be written to one router.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "baton/v1/worker.pb.h"

namespace baton::worker {

// Merges what comes while a write is in flight, so that a slow router costs
// memory for tokens and not for messages. Keeps order within a sequence:
// Accepted, then steps as they came. Only the newest heartbeat is kept.
//
// Thread safety: none.
class Outbox final {
 public:
  // Steps are merged up to this size, well below gRPC's message limit.
  static constexpr size_t kMergeBytes = 256 << 10;

  void AddHello(v1::Hello hello) { hello_ = std::move(hello); }
  void AddAccepted(uint64_t sequence_key);
  void AddStep(v1::StepOutput step);
  void SetHeartbeat(v1::Heartbeat heartbeat) { heartbeat_ = std::move(heartbeat); }

  // Takes the next message into `message`; false when there is none.
  bool Next(v1::WorkerMessage* message);

  bool empty() const { return !hello_ && accepted_.empty() && steps_.empty() && !heartbeat_; }
  // Serialized size of the steps that wait.
  size_t bytes() const { return bytes_; }

 private:
  struct Step {
    v1::StepOutput message;
    size_t bytes = 0;
  };

  std::optional<v1::Hello> hello_;
  std::deque<uint64_t> accepted_;
  std::deque<Step> steps_;
  std::optional<v1::Heartbeat> heartbeat_;
  size_t bytes_ = 0;
};

}  // namespace baton::worker
