// SPDX-License-Identifier: Apache-2.0
// Keeps a worker attached to one router, for as long as the worker lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "baton/v1/worker.grpc.pb.h"
#include "common/worker/attach_stream.h"

namespace baton::worker {

// Opens streams one after the other: after a broken one at once, then with
// growing pauses; slowly when the router refuses the worker. Sends heartbeats.
class RouterLink final {
 public:
  // What a link needs of its worker. Called on the link's thread, but for the
  // sink, which is called on gRPC's; all must be thread-safe.
  struct Hooks {
    AssignSink* sink = nullptr;
    std::function<v1::Hello()> hello;
    std::function<v1::Heartbeat(uint64_t owner)> heartbeat;
    std::function<void(std::shared_ptr<AttachStream>)> opened;
    std::function<void(uint64_t owner)> attached;
    // The stream has ended; what the owner still runs is to be cancelled.
    std::function<void(uint64_t owner)> closed;
  };

  RouterLink(std::string address, std::unique_ptr<v1::Registry::Stub> stub, Hooks hooks);
  // Stop() with no patience.
  ~RouterLink();

  void Start();

  // The load has changed by more than tokens: heartbeat soon.
  void LoadChanged();
  // Writes what waits and closes the stream, within `patience`; joins.
  void Stop(absl::Duration patience);

 private:
  void Run();
  // Until the stream has ended.
  AttachStream::State Serve(AttachStream& stream);
  // Flushes and closes the stream, or breaks it at the end of patience.
  AttachStream::State Close(AttachStream& stream, bool attached);
  bool TakeLoadChanged();
  // Waits for an event, at most until `deadline`; true when stopping.
  bool WaitUntil(absl::Time deadline);
  bool Stopping();
  void Wake();
  absl::Duration PauseAfter(const AttachStream::State& last);
  void LogEnd(const absl::Status& status);

  const std::string address_;
  const std::unique_ptr<v1::Registry::Stub> stub_;
  const Hooks hooks_;

  absl::Mutex mutex_;
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  bool load_changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  absl::Duration pause_;     // of the link's thread
  std::string last_logged_;  // of the link's thread
  absl::BitGen random_;      // of the link's thread
  std::thread thread_;
};

}  // namespace baton::worker
