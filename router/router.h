// SPDX-License-Identifier: Apache-2.0
// A running router: its parts, put together and taken down in order.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "router/dispatcher.h"
#include "router/dispatcher_thread.h"
#include "router/inference_service.h"
#include "router/live_calls.h"
#include "router/options.h"
#include "router/registry_service.h"
#include "router/router_metrics.h"
#include "router/served_model.h"
#include "router/task_pool.h"

namespace baton::router {

class Router final {
 public:
  // Listens when it returns. Errors name the flag to change.
  static absl::StatusOr<std::unique_ptr<Router>> Start(const Options& options,
                                                       std::unique_ptr<ModelSlot> model);
  // Drains with no time.
  ~Router();

  std::string address() const { return server_->address(); }
  std::string worker_address() const;   // where workers attach
  std::string metrics_address() const;  // empty: none
  metrics::Metrics& metrics() { return metrics_; }

  // Refuses new requests, lets those accepted finish for `timeout`, ends the
  // rest with UNAVAILABLE, and stops serving. Call once.
  void Drain(absl::Duration timeout);

 private:
  Router(const Options& options, std::unique_ptr<ModelSlot> model);
  absl::Status Listen();

  const Options options_;
  metrics::Metrics metrics_;
  RouterMetrics router_metrics_;
  LiveCalls calls_;
  const std::unique_ptr<ModelSlot> model_;
  Dispatcher dispatcher_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Server> worker_server_;  // null: server_ serves workers too
  std::unique_ptr<DispatcherThread> thread_;
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<InferenceService> inference_;
  std::unique_ptr<RegistryService> registry_;
  std::atomic<bool> started_{false};
  bool drained_ = false;
};

}  // namespace baton::router
