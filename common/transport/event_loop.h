// SPDX-License-Identifier: Apache-2.0
// One thread that waits for sockets, timers and messages of other threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace baton::transport {

// Everything but Post and Stop belongs to the loop's own thread. A handler or
// timer that was removed never runs again, not even for an event the kernel
// had already reported.
// Others than its owner hold it weakly, if they may outlive it.
class EventLoop final : public std::enable_shared_from_this<EventLoop> {
 public:
  using Task = std::function<void()>;
  using Clock = std::chrono::steady_clock;
  using OnEvents = std::function<void(uint32_t)>;

  // RESOURCE_EXHAUSTED: no descriptor left.
  static absl::StatusOr<std::shared_ptr<EventLoop>> Make(const char* thread_name);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs `task` on the loop, in order of the calls. False, and nothing runs,
  // once the loop was told to stop. Any thread.
  bool Post(Task task);

  // Runs what was posted, then `last`, then ends the thread. Not on the loop.
  void Stop(Task last = nullptr);

  // Calls `on_events` with the epoll events of `fd`; the answer names the watch.
  uint64_t Watch(int fd, uint32_t events, OnEvents on_events);
  void Rewatch(uint64_t watch, uint32_t events);
  void Unwatch(uint64_t watch);

  // Runs `task` once at `when`; the answer names the timer (never 0).
  uint64_t At(Clock::time_point when, Task task);
  uint64_t After(absl::Duration delay, Task task);
  void Cancel(uint64_t timer);

  // Runs `task` when the handlers of this turn are through. What a handler
  // wants destroyed under its own feet goes here.
  void Defer(Task task) { deferred_.push_back(std::move(task)); }

 private:
  struct Watched {
    int fd;
    std::shared_ptr<OnEvents> on_events;
  };

  EventLoop(UniqueFd epoll, UniqueFd wake);
  void Run(const std::string& name);
  void RunMailbox();
  void RunTimers();
  void RunDeferred();
  int TimeoutMs() const;

  const UniqueFd epoll_;
  const UniqueFd wake_;
  std::thread thread_;

  std::mutex mutex_;
  std::vector<Task> mailbox_;  // guarded by mutex_
  bool closed_ = false;        // guarded by mutex_

  bool running_ = true;
  uint64_t next_id_ = 1;
  absl::flat_hash_map<uint64_t, Watched> watches_;
  std::map<std::pair<Clock::time_point, uint64_t>, Task> timers_;
  absl::flat_hash_map<uint64_t, Clock::time_point> timer_times_;
  std::vector<Task> deferred_;
};

}  // namespace baton::transport
