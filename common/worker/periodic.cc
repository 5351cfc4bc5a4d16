// SPDX-License-Identifier: Apache-2.0
#include "common/worker/periodic.h"

#include <utility>

namespace baton::worker {

Periodic::Periodic(absl::Duration interval, std::function<void()> work)
    : thread_([this, interval, run = std::move(work)] { Run(interval, run); }) {}

Periodic::~Periodic() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Periodic::Run(absl::Duration interval, const std::function<void()>& work) {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), interval)) return;
    }
    work();
  }
}

}  // namespace baton::worker
