// SPDX-License-Identifier: Apache-2.0
// A program started by a test, with pipes on its three streams.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/base/unique_fd.h"

namespace baton::testing {

class ChildProcess final {
 public:
  // `arguments[0]` is the path of the program.
  explicit ChildProcess(std::vector<std::string> arguments);
  ~ChildProcess();  // kills what still runs

  void Type(const std::string& text);
  void CloseInput() { input_.Reset(); }
  // Reads on until standard output (or error) holds `text`; false after 10 s or its end.
  bool WaitForOutput(const std::string& text) { return WaitFor(text, output_fd_, &output_); }
  bool WaitForError(const std::string& text) { return WaitFor(text, error_fd_, &error_); }
  void Interrupt();
  // Reads all, waits for the end, returns the exit code, -1 when a signal ended it.
  int Wait();

  const std::string& output() const { return output_; }
  const std::string& error() const { return error_; }

 private:
  static bool WaitFor(const std::string& text, const UniqueFd& fd, std::string* seen);

  pid_t pid_ = -1;
  UniqueFd input_, output_fd_, error_fd_;
  std::string output_, error_;
};

}  // namespace baton::testing
