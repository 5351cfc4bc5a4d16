// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT as events on an ordinary thread.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::worker {

// Make it before any other thread, since threads inherit the signal mask. The
// first signal calls the handler on the object's thread, or ends the process
// when there is none yet; a second one ends the process at once with 130.
// SIGPIPE is ignored from here on.
class ShutdownSignals final {
 public:
  ShutdownSignals();
  ~ShutdownSignals();

  // `handler` is called for the first signal. The process then has `limit` to
  // end in good order; after that it is ended with 1.
  void Handle(std::function<void()> handler, absl::Duration limit);

 private:
  void Run();
  // Waits for SIGTERM or SIGINT; false at `deadline` or when stopping.
  bool WaitForSignal(absl::Time deadline);

  absl::Mutex mutex_;
  std::function<void()> handler_ ABSL_GUARDED_BY(mutex_);
  absl::Duration limit_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace baton::worker
