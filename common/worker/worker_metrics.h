// SPDX-License-Identifier: Apache-2.0
// What a worker tells Prometheus.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/engine/engine.h"
#include "common/metrics/metrics.h"

namespace baton::worker {

// Names baton_worker_*, labels `role` and `model`. Thread-safe.
class WorkerMetrics final {
 public:
  WorkerMetrics(metrics::Metrics* metrics, metrics::Labels labels);

  // Takes the gauges from `engine` at every scrape from now on, so that they
  // are right when no step runs; until StopWatching(). Call it once.
  void Watch(const engine::Engine* engine);
  void StopWatching();

  void CountEnd(absl::StatusCode code);
  void ObserveStep(absl::Duration elapsed);
  void SetRouters(int attached);

 private:
  struct Watched;

  metrics::Metrics* const metrics_;
  const metrics::Labels labels_;
  prometheus::Histogram& step_seconds_;
  prometheus::Gauge& routers_;
  // Shared with the scrape, which may outlive this object.
  const std::shared_ptr<Watched> watched_;
};

// Hand-offs, as either end sees them; same labels. Thread-safe.
class HandoffMetrics final {
 public:
  HandoffMetrics(metrics::Metrics* metrics, metrics::Labels labels);
  // A hand-off over `transport` ended with `code` after `elapsed`.
  void Count(const std::string& transport, absl::StatusCode code, uint64_t bytes,
             absl::Duration elapsed);

 private:
  metrics::Metrics* const metrics_;
  const metrics::Labels labels_;
  prometheus::Histogram& seconds_;
};

}  // namespace baton::worker
