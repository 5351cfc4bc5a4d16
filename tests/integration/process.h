// SPDX-License-Identifier: Apache-2.0
// A child process that cannot outlive its test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace baton::testing {

// The kernel kills the child when the thread that started it ends, so start it
// on the test's main thread.
class Process final {
 public:
  // Runs `arguments` (arguments[0] is the binary's path); its output goes to
  // `log_file`. Null when it cannot be started.
  static std::unique_ptr<Process> Start(const std::vector<std::string>& arguments,
                                        const std::string& log_file);
  // Kills and reaps it.
  ~Process();

  pid_t pid() const { return pid_; }
  const std::string& log_file() const { return log_file_; }
  std::string Log() const;

  void Signal(int number) const;
  // Exit code, or 128 + the signal that ended it; nullopt when it still runs
  // after `timeout`.
  std::optional<int> Wait(std::chrono::milliseconds timeout);

 private:
  Process(pid_t pid, std::string log_file) : pid_(pid), log_file_(std::move(log_file)) {}

  const pid_t pid_;
  const std::string log_file_;
  std::optional<int> exit_;
};

}  // namespace baton::testing
