// SPDX-License-Identifier: Apache-2.0
// Where workers attach.
#pragma once

#include <atomic>

#include "baton/v1/worker.grpc.pb.h"
#include "router/dispatcher_thread.h"
#include "router/live_calls.h"
#include "router/stream_writer.h"

namespace baton::router {

class RegistryService final : public v1::Registry::CallbackService {
 public:
  // Both must outlive the service's calls.
  RegistryService(DispatcherThread* dispatcher, LiveCalls* calls, StreamLimits limits)
      : dispatcher_(dispatcher), calls_(calls), limits_(limits) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::RouterMessage>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  DispatcherThread* const dispatcher_;
  LiveCalls* const calls_;
  const StreamLimits limits_;
  std::atomic<LinkId> last_id_{0};
};

}  // namespace baton::router
