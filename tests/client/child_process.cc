// SPDX-License-Identifier: Apache-2.0
#include "tests/client/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

extern char** environ;

namespace baton::testing {
namespace {

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    int fds[2] = {-1, -1};
    (void)!pipe2(fds, O_CLOEXEC);
    read = UniqueFd(fds[0]);
    write = UniqueFd(fds[1]);
  }
};

constexpr std::chrono::seconds kPatience(10);

}  // namespace

ChildProcess::ChildProcess(std::vector<std::string> arguments) {
  Pipe input, output, error;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.write.get(), STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  input_ = std::move(input.write);
  output_fd_ = std::move(output.read);
  error_fd_ = std::move(error.read);
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::Type(const std::string& text) {
  (void)!write(input_.get(), text.data(), text.size());
}

void ChildProcess::Interrupt() { kill(pid_, SIGINT); }

bool ChildProcess::WaitFor(const std::string& text, const UniqueFd& fd, std::string* seen) {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (seen->find(text) == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - std::chrono::steady_clock::now());
    pollfd waiting = {fd.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[4096];
    const ssize_t count = read(fd.get(), bytes, sizeof(bytes));
    if (count <= 0) return false;
    seen->append(bytes, static_cast<size_t>(count));
  }
  return true;
}

int ChildProcess::Wait() {
  // A text that never comes: reads to the end.
  const std::string never(1, '\0');
  WaitFor(never, output_fd_, &output_);
  WaitFor(never, error_fd_, &error_);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace baton::testing
