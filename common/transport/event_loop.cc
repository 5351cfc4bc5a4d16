// SPDX-License-Identifier: Apache-2.0
#include "common/transport/event_loop.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/system_error.h"

namespace baton::transport {
namespace {

constexpr uint64_t kWakeId = 0;

// One hour; a timer further away is looked at again then.
constexpr int kLongestWaitMs = 3'600'000;

}  // namespace

absl::StatusOr<std::shared_ptr<EventLoop>> EventLoop::Make(const char* thread_name) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make an event loop: ", ErrnoText(errno)));
  }
  std::shared_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake)));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->wake_.get(), &event);
  loop->thread_ =
      std::thread([raw = loop.get(), name = std::string(thread_name)] { raw->Run(name); });
  return loop;
}

EventLoop::EventLoop(UniqueFd epoll, UniqueFd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

EventLoop::~EventLoop() { Stop(); }

bool EventLoop::Post(Task task) {
  bool was_empty;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    was_empty = mailbox_.empty();
    mailbox_.push_back(std::move(task));
  }
  if (was_empty) eventfd_write(wake_.get(), 1);
  return true;
}

void EventLoop::Stop(Task last) {
  if (!thread_.joinable()) return;
  Post([this, last = std::move(last)] {
    if (last) last();
    running_ = false;
  });
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  thread_.join();
}

uint64_t EventLoop::Watch(int fd, uint32_t events, OnEvents on_events) {
  const uint64_t id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  watches_[id] = {fd, std::make_shared<OnEvents>(std::move(on_events))};
  return id;
}

void EventLoop::Rewatch(uint64_t watch, uint32_t events) {
  const auto it = watches_.find(watch);
  if (it == watches_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, it->second.fd, &event);
}

void EventLoop::Unwatch(uint64_t watch) {
  const auto it = watches_.find(watch);
  if (it == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
  watches_.erase(it);
}

uint64_t EventLoop::At(Clock::time_point when, Task task) {
  const uint64_t id = next_id_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_[id] = when;
  return id;
}

uint64_t EventLoop::After(absl::Duration delay, Task task) {
  // Clamped, so that an infinite delay does not overflow the clock.
  const absl::Duration clamped = std::clamp(delay, absl::ZeroDuration(), absl::Hours(24 * 365));
  return At(Clock::now() + absl::ToChronoNanoseconds(clamped), std::move(task));
}

void EventLoop::Cancel(uint64_t timer) {
  const auto it = timer_times_.find(timer);
  if (it == timer_times_.end()) return;
  timers_.erase({it->second, timer});
  timer_times_.erase(it);
}

void EventLoop::Run(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  std::array<epoll_event, 64> events;
  while (running_) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), TimeoutMs());
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;  // packed: no reference may bind to it
      if (id == kWakeId) {
        RunMailbox();
        continue;
      }
      const auto it = watches_.find(id);
      if (it == watches_.end()) continue;  // removed by an earlier handler of this turn
      const auto on_events = it->second.on_events;
      (*on_events)(events[i].events);
    }
    RunTimers();
    RunDeferred();
  }
  while (!deferred_.empty()) RunDeferred();
}

void EventLoop::RunMailbox() {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(mailbox_);
  }
  for (Task& task : tasks) task();
}

void EventLoop::RunTimers() {
  const Clock::time_point now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::RunDeferred() {
  // One round: what these tasks defer waits for the next turn, so that a task
  // that goes on by deferring itself cannot starve the sockets.
  std::vector<Task> tasks;
  tasks.swap(deferred_);
  for (Task& task : tasks) task();
}

int EventLoop::TimeoutMs() const {
  if (!deferred_.empty()) return 0;
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - Clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, kLongestWaitMs));
}

}  // namespace baton::transport
