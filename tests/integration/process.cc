// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

namespace baton::testing {

std::unique_ptr<Process> Process::Start(const std::vector<std::string>& arguments,
                                        const std::string& log_file) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return nullptr;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {  // only async-signal-safe calls: other threads hold locks
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(log);
  if (pid < 0) return nullptr;
  return std::unique_ptr<Process>(new Process(pid, log_file));
}

Process::~Process() {
  if (exit_.has_value()) return;
  Signal(SIGKILL);
  Wait(std::chrono::seconds(10));
}

std::string Process::Log() const {
  std::ostringstream text;
  text << std::ifstream(log_file_).rdbuf();
  return text.str();
}

void Process::Signal(int number) const {
  if (!exit_.has_value()) kill(pid_, number);
}

std::optional<int> Process::Wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!exit_.has_value()) {
    int state = 0;
    if (waitpid(pid_, &state, WNOHANG) == pid_) {
      exit_ = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return exit_;
}

}  // namespace baton::testing
