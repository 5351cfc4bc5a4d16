// SPDX-License-Identifier: Apache-2.0
// The router's end of Registry.Attach, played by a test.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/v1/worker.grpc.pb.h"

namespace baton::worker {

// Serves on loopback; keeps what workers say in the order of arrival.
class ScriptedRegistry final : private v1::Registry::Service {
 public:
  // Port 0: any. Null when the port is taken.
  static std::unique_ptr<ScriptedRegistry> Start(int port = 0);
  // Breaks every stream without a word, as a router that dies does.
  ~ScriptedRegistry() override;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // Streams that attach from now on are ended with `status` after Hello; OK
  // welcomes them.
  void RefuseWith(const grpc::Status& status);
  // Streams that attach from now on get no Welcome.
  void StaySilent();
  // Stops reading from attached workers.
  void StopReading();

  // To the worker that attached last with `worker_id` ("" for any); false when
  // there is none.
  bool Send(const v1::RouterMessage& message, const std::string& worker_id = "");

  // Waits for the next message that `wanted` accepts and takes it out, leaving
  // the others; nullopt after `timeout`.
  std::optional<v1::WorkerMessage> Await(
      const std::function<bool(const v1::WorkerMessage&)>& wanted,
      absl::Duration timeout = absl::Seconds(5));

  // Waits until `count` streams have sent Hello since the start.
  bool AwaitAttached(int count, absl::Duration timeout = absl::Seconds(5));
  int attached() const;

 private:
  using Stream = grpc::ServerReaderWriter<v1::RouterMessage, v1::WorkerMessage>;
  struct Attached {
    std::string worker_id;
    Stream* stream = nullptr;
  };

  ScriptedRegistry() = default;
  grpc::Status Attach(grpc::ServerContext* context, Stream* stream) override;
  void ReadAll(Stream* stream);

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  mutable absl::Mutex mutex_;
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int attached_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Attached> streams_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::WorkerMessage> messages_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::worker
