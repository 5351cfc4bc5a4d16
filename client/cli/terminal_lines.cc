// SPDX-License-Identifier: Apache-2.0
#include "client/cli/terminal_lines.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace baton::cli {

TerminalLines::TerminalLines(int fd)
    : fd_(fd), interrupt_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

LineSource::Kind TerminalLines::Read(std::string* line) {
  while (true) {
    pollfd fds[] = {{interrupt_.get(), POLLIN, 0}, {fd_, POLLIN, 0}};
    const bool have_line = buffered_.find('\n') != std::string::npos;
    if (poll(fds, 2, have_line || at_end_ ? 0 : -1) < 0 && errno != EINTR) return Kind::kEnd;
    if ((fds[0].revents & POLLIN) != 0) {
      uint64_t count;
      (void)!read(interrupt_.get(), &count, sizeof(count));
      // The terminal throws its own half-typed line away; so is ours.
      buffered_.clear();
      return Kind::kInterrupted;
    }
    if (TakeLine(line)) return Kind::kLine;
    if (at_end_) return Kind::kEnd;
    if ((fds[1].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    char bytes[4096];
    const ssize_t count = read(fd_, bytes, sizeof(bytes));
    if (count > 0) buffered_.append(bytes, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) at_end_ = true;
  }
}

void TerminalLines::Interrupt() {
  const uint64_t one = 1;
  (void)!write(interrupt_.get(), &one, sizeof(one));
}

bool TerminalLines::TakeLine(std::string* line) {
  const size_t end = buffered_.find('\n');
  if (end != std::string::npos) {
    *line = buffered_.substr(0, end);
    buffered_.erase(0, end + 1);
    return true;
  }
  if (!at_end_ || buffered_.empty()) return false;
  *line = std::exchange(buffered_, {});  // the last line has no line break
  return true;
}

}  // namespace baton::cli
