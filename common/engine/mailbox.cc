// SPDX-License-Identifier: Apache-2.0
#include "common/engine/mailbox.h"

#include <utility>

namespace baton::engine {

void Mailbox::Post(Command command) {
  // Notified under the lock: the command may be the one that lets the engine,
  // and this object with it, go.
  const std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
  posted_.notify_one();
}

std::vector<Mailbox::Command> Mailbox::Take(absl::Duration patience) {
  std::unique_lock lock(mutex_);
  if (patience > absl::ZeroDuration()) {
    posted_.wait_for(lock, absl::ToChronoNanoseconds(patience),
                     [this] { return !commands_.empty(); });
  }
  return std::exchange(commands_, {});
}

}  // namespace baton::engine
