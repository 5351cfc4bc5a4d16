// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a call instead of the end of the process.
#pragma once

#include <functional>
#include <thread>

#include "common/base/unique_fd.h"

namespace baton::cli {

// From construction to destruction SIGINT is blocked in this thread and those
// it starts, and `handler` is called for each, on a thread of this object.
// Make it before anything that starts threads.
class Interrupts final {
 public:
  explicit Interrupts(std::function<void()> handler);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  void Watch();

  std::function<void()> handler_;
  UniqueFd signals_;  // signalfd
  UniqueFd quit_;     // eventfd, readable when the watcher is to end
  std::thread watcher_;
};

}  // namespace baton::cli
