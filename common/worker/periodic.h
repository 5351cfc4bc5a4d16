// SPDX-License-Identifier: Apache-2.0
// A clock of its own for what must not ride on the thing it watches.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton::worker {

// Calls a function every `interval` on its own thread until destroyed. The
// function must not block.
class Periodic final {
 public:
  Periodic(absl::Duration interval, std::function<void()> work);
  ~Periodic();

 private:
  void Run(absl::Duration interval, const std::function<void()>& work);

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace baton::worker
