// SPDX-License-Identifier: Apache-2.0
#include "router/dispatcher_thread.h"

#include <algorithm>
#include <utility>

#include "router/clock.h"

namespace baton::router {
namespace {

// Bounds a wait whose end is set on the router's clock.
std::chrono::milliseconds Until(absl::Time time) {
  const absl::Duration left = std::clamp(time - SteadyNow(), absl::ZeroDuration(), absl::Hours(1));
  return absl::ToChronoMilliseconds(absl::Ceil(left, absl::Milliseconds(1)));
}

}  // namespace

DispatcherThread::DispatcherThread(Dispatcher* dispatcher, std::function<void(bool)> on_ready)
    : dispatcher_(dispatcher), on_ready_(std::move(on_ready)), thread_([this] { Loop(); }) {}

DispatcherThread::~DispatcherThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void DispatcherThread::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
    ++posted_;
  }
  wake_.notify_one();
}

void DispatcherThread::Run(Task task) {
  std::unique_lock lock(mutex_);
  tasks_.push_back(std::move(task));
  const uint64_t number = ++posted_;
  wake_.notify_one();
  progress_.wait(lock, [&] { return done_ >= number; });
}

bool DispatcherThread::WaitIdle(absl::Time deadline) {
  std::unique_lock lock(mutex_);
  while (!idle_) {
    if (SteadyNow() >= deadline) return false;
    progress_.wait_for(lock, Until(deadline));
  }
  return true;
}

void DispatcherThread::Loop() {
  bool ready = false;
  std::vector<Task> tasks;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait_for(lock, Until(dispatcher_->next_wake()),
                   [this] { return stopping_ || !tasks_.empty(); });
    tasks.swap(tasks_);
    if (tasks.empty() && stopping_) return;
    lock.unlock();
    for (Task& task : tasks) task(*dispatcher_, SteadyNow());
    const uint64_t ran = tasks.size();
    tasks.clear();
    dispatcher_->Tick(SteadyNow());
    if (ready != dispatcher_->ready()) on_ready_(ready = !ready);
    lock.lock();
    done_ += ran;
    idle_ = dispatcher_->idle();
    progress_.notify_all();
  }
}

}  // namespace baton::router
