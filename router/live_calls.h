// SPDX-License-Identifier: Apache-2.0
// Counts reactors that gRPC still holds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/time/time.h"

namespace baton::router {

// A server must not shut down before its reactors are done: gRPC would wait
// for them without a bound. Thread-safe.
class LiveCalls final {
 public:
  // `changed` hears every new count.
  explicit LiveCalls(std::function<void(int64_t)> changed) : changed_(std::move(changed)) {}

  void Add() { Change(1); }
  void Remove() { Change(-1); }
  // False when some are left after `timeout`.
  bool WaitNone(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                          [this] { return count_ == 0; });
  }

 private:
  void Change(int64_t by) {
    const std::lock_guard lock(mutex_);
    count_ += by;
    changed_(count_);
    if (count_ == 0) none_.notify_all();
  }

  const std::function<void(int64_t)> changed_;
  std::mutex mutex_;
  std::condition_variable none_;
  int64_t count_ = 0;
};

}  // namespace baton::router
