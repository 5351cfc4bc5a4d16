// SPDX-License-Identifier: Apache-2.0
// A worker's end of hand-offs: what a prefill and a decode worker differ in.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "common/engine/engine.h"
#include "common/kv/device_pool.h"
#include "common/kv/layout.h"
#include "common/metrics/metrics.h"
#include "common/worker/options.h"

namespace baton::worker {

// Whether a worker that is to use `transports` offers cuda_ipc: not without a pool that
// others can map, where it has another way to go on with.
bool KeepsCudaIpc(const kv::DevicePool* pool, const std::vector<std::string>& transports);

class HandoffEnd {
 public:
  struct Context {
    const Options* options = nullptr;  // completed
    kv::KvLayout layout;
    metrics::Metrics* metrics = nullptr;
    metrics::Labels labels;
  };

  virtual ~HandoffEnd() = default;

  // Called once, before the engine is made. What is returned goes to the
  // engine; null when this end sends nothing.
  virtual absl::StatusOr<engine::HandoffSender*> Prepare(const Context& context) = 0;
  // Called once, before the first Submit. `engine` lives until after Stop().
  virtual absl::Status Start(engine::Engine* engine) = 0;
  // Adds endpoints and transports.
  virtual void Describe(v1::Hello* hello) const = 0;

  // Gives a checked sequence to the engine, and keeps what its hand-off will
  // need. Not OK: the engine has not seen it. Any thread.
  virtual absl::Status Submit(engine::SequenceSpec spec, const v1::Assign& assign) = 0;
  // The sequence has ended in the engine. On the engine's thread.
  virtual void Ended(engine::SequenceRef ref) = 0;
  // Once a second or so: gives up what takes too long. On a thread of its own.
  virtual void Expire(absl::Time now) = 0;

  // No peer writes or reads from here on; hand-offs in flight are aborted.
  // The engine is still there.
  virtual void Stop() = 0;
};

}  // namespace baton::worker
