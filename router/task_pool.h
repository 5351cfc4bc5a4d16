// SPDX-License-Identifier: Apache-2.0
// A few threads for work that must not run in gRPC's: parsing and tokenizing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace baton::router {

// Thread-safe.
class TaskPool final {
 public:
  TaskPool(uint32_t threads, size_t max_waiting);
  // Runs what still waits, then joins.
  ~TaskPool();

  // False when `max_waiting` tasks wait already.
  [[nodiscard]] bool TryPost(std::function<void()> task);

 private:
  void Work();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::router
