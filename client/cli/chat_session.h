// SPDX-License-Identifier: Apache-2.0
// A conversation on a terminal.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "client/baton/client.h"

namespace baton::cli {

// Where the user's lines come from.
class LineSource {
 public:
  enum class Kind { kLine, kEnd, kInterrupted };

  virtual ~LineSource() = default;
  // Waits for a line (without its line break), the end of the input, or Interrupt().
  virtual Kind Read(std::string* line) = 0;
  // Makes the running or the next Read return kInterrupted; from any thread.
  virtual void Interrupt() = 0;
};

// Reads lines, sends the whole conversation with each, keeps the answers.
//
// Interrupt() (Ctrl-C) ends the running answer, or, at the prompt, the second
// in a row ends the session. An answer that was cut short stays in the
// conversation as far as it came; a message that failed is taken out, so that
// it can be sent again.
//
// Thread safety: Interrupt() from any thread, the rest from one.
class ChatSession final {
 public:
  using Send = std::function<Result(const Request&, const std::function<bool(const TokenEvent&)>&,
                                    const Client::CancelToken&)>;
  struct Options {
    Request settings;  // everything but messages
    std::string system;
    bool interactive = true;  // prompts, hints and timing
  };

  // Sources and streams must outlive the session. Answers go to `output`,
  // everything else to `notes`.
  ChatSession(Options options, Send send, LineSource* input, std::ostream* output,
              std::ostream* notes);

  // Until /exit, the end of input or two interrupts. True when no answer failed
  // other than by cancellation.
  bool Run();
  void Interrupt();

  const std::vector<ChatTurn>& history() const { return history_; }

 private:
  // False when the session is over.
  bool HandleLine(const std::string& line);
  bool HandleCommand(const std::string& command);
  void Answer(const std::string& text);
  void KeepAnswer(const Result& result);
  void Reset();

  const Options options_;
  const Send send_;
  LineSource* const input_;
  std::ostream& output_;
  std::ostream& notes_;
  std::vector<ChatTurn> history_;
  bool failed_ = false;

  std::mutex mutex_;
  std::optional<Client::CancelToken> running_;  // of the running answer
};

}  // namespace baton::cli
