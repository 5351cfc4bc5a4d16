// SPDX-License-Identifier: Apache-2.0
// Lines of a file descriptor whose reading can be interrupted.
#pragma once

#include <string>

#include "client/cli/chat_session.h"
#include "common/base/unique_fd.h"

namespace baton::cli {

class TerminalLines final : public LineSource {
 public:
  // Does not own `fd`, such as standard input.
  explicit TerminalLines(int fd);

  Kind Read(std::string* line) override;
  void Interrupt() override;

 private:
  bool TakeLine(std::string* line);

  int fd_;
  UniqueFd interrupt_;    // eventfd, readable after Interrupt()
  std::string buffered_;  // read and not handed out
  bool at_end_ = false;
};

}  // namespace baton::cli
