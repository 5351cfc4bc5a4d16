// SPDX-License-Identifier: Apache-2.0
// A worker in a process of its own, to be killed.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace baton::transport {

// A pipe to talk through: lines of text.
class LinePipe {
 public:
  LinePipe();
  void Write(const std::string& line) const;
  // Empty when nothing came within patience.
  std::string Read(absl::Duration patience = absl::Seconds(10)) const;

 private:
  int read_ = -1, write_ = -1;
};

// Fork before this process has threads: the child makes its own.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void()>& body);
  ~ChildProcess();  // kills it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal) const;
  // SIGSTOP, and waits until it stands still.
  void Stop() const;
  // SIGKILL, and waits for the end.
  void Kill();

 private:
  int pid_ = -1;
};

}  // namespace baton::transport
