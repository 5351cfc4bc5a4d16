// SPDX-License-Identifier: Apache-2.0
// Work for the engine's thread from other threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace baton::engine {

// Thread safety: Post from any thread; Take from the engine's thread alone.
class Mailbox final {
 public:
  using Command = absl::AnyInvocable<void()>;

  void Post(Command command);

  // Everything posted so far, in order. Waits for something for at most
  // `patience`; returns at once for zero or less.
  std::vector<Command> Take(absl::Duration patience);

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Command> commands_;
};

}  // namespace baton::engine
