// SPDX-License-Identifier: Apache-2.0
#include "tests/common/transport/child_process.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace baton::transport {

LinePipe::LinePipe() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) abort();
  read_ = ends[0];
  write_ = ends[1];
}

void LinePipe::Write(const std::string& line) const {
  const std::string text = line + "\n";
  if (write(write_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) abort();
}

std::string LinePipe::Read(absl::Duration patience) const {
  std::string line;
  char c = 0;
  pollfd wait{read_, POLLIN, 0};
  while (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) > 0 &&
         read(read_, &c, 1) == 1 && c != '\n') {
    line += c;
  }
  return line;
}

ChildProcess::ChildProcess(const std::function<void()>& body) {
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  _exit(0);
}

ChildProcess::~ChildProcess() { Kill(); }

void ChildProcess::Signal(int signal) const { kill(pid_, signal); }

void ChildProcess::Stop() const {
  kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

void ChildProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace baton::transport
