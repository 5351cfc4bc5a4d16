// SPDX-License-Identifier: Apache-2.0
// The thread that owns the dispatcher.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "router/dispatcher.h"

namespace baton::router {

// Runs posted tasks in order and the dispatcher's timers. What posts is
// bounded elsewhere: one message per worker link, and the calls that are open.
// Thread-safe.
class DispatcherThread final {
 public:
  using Task = std::function<void(Dispatcher&, absl::Time now)>;

  // `on_ready` hears of changes of Dispatcher::ready(), on the thread.
  // `dispatcher` must outlive this.
  DispatcherThread(Dispatcher* dispatcher, std::function<void(bool)> on_ready);
  // Runs what was posted, then joins.
  ~DispatcherThread();

  // Dropped after the destructor has begun.
  void Post(Task task);
  // Posts and waits until the task is done and WaitIdle knows of it. Not from
  // the thread itself, and not once the destructor has begun.
  void Run(Task task);
  // False when requests are left at `deadline` (of SteadyNow()).
  bool WaitIdle(absl::Time deadline);

 private:
  void Loop();

  Dispatcher* const dispatcher_;
  const std::function<void(bool)> on_ready_;
  std::mutex mutex_;
  std::condition_variable wake_, progress_;
  std::vector<Task> tasks_;
  uint64_t posted_ = 0, done_ = 0;  // tasks so far
  bool stopping_ = false;
  bool idle_ = true;
  std::thread thread_;
};

}  // namespace baton::router
