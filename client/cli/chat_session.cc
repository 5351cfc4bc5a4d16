// SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat_session.h"

#include <utility>

#include "client/cli/result_json.h"

namespace baton::cli {
namespace {

constexpr char kHelp[] =
    "/help    this list\n"
    "/reset   forgets the conversation\n"
    "/exit    leaves; so do Ctrl-D and Ctrl-C twice at the prompt\n"
    "Ctrl-C   stops the running answer\n";

}  // namespace

ChatSession::ChatSession(Options options, Send send, LineSource* input, std::ostream* output,
                         std::ostream* notes)
    : options_(std::move(options)),
      send_(std::move(send)),
      input_(input),
      output_(*output),
      notes_(*notes) {
  Reset();
}

bool ChatSession::Run() {
  bool interrupted = false;
  while (true) {
    if (options_.interactive) notes_ << "> " << std::flush;
    std::string line;
    const LineSource::Kind kind = input_->Read(&line);
    if (kind == LineSource::Kind::kEnd) break;
    if (kind == LineSource::Kind::kInterrupted) {
      notes_ << '\n';
      if (interrupted) break;
      interrupted = true;
      notes_ << "Ctrl-C again or /exit leaves.\n";
      continue;
    }
    interrupted = false;
    if (!HandleLine(line)) return !failed_;
  }
  if (options_.interactive) notes_ << std::endl;
  return !failed_;
}

void ChatSession::Interrupt() {
  {
    const std::lock_guard lock(mutex_);
    if (running_) {
      running_->Cancel();
      return;
    }
  }
  input_->Interrupt();
}

bool ChatSession::HandleLine(const std::string& line) {
  if (line.find_first_not_of(" \t\r") == std::string::npos) return true;
  if (line.front() == '/') return HandleCommand(line);
  Answer(line);
  return true;
}

bool ChatSession::HandleCommand(const std::string& command) {
  if (command == "/exit" || command == "/quit") return false;
  if (command == "/reset") {
    Reset();
    notes_ << "The conversation starts anew.\n";
  } else {
    if (command != "/help") notes_ << "There is no command " << command << ".\n";
    notes_ << kHelp;
  }
  return true;
}

void ChatSession::Answer(const std::string& text) {
  history_.push_back({"user", text});
  Request request = options_.settings;
  request.messages = history_;
  Client::CancelToken cancel;
  {
    const std::lock_guard lock(mutex_);
    running_ = cancel;
  }
  const Result result = send_(
      request,
      [this](const TokenEvent& event) {
        output_ << event.text << std::flush;
        return true;
      },
      cancel);
  {
    const std::lock_guard lock(mutex_);
    running_.reset();
  }
  if (!result.text.empty() && result.text.back() != '\n') output_ << '\n';
  output_ << std::flush;
  KeepAnswer(result);
}

void ChatSession::KeepAnswer(const Result& result) {
  const bool cancelled = result.status.code == StatusCode::kCancelled;
  const bool worth_keeping = result.status.ok() || (cancelled && !result.text.empty());
  if (worth_keeping) {
    history_.push_back({"assistant", result.text});
  } else {
    history_.pop_back();
  }
  if (cancelled) {
    notes_ << "[stopped]" << std::endl;
  } else if (!result.status.ok()) {
    failed_ = true;
    notes_ << StatusLine(result.status) << std::endl;
  } else if (options_.interactive) {
    notes_ << "[" << TimingSummary(result) << "]" << std::endl;
  }
}

void ChatSession::Reset() {
  history_.clear();
  if (!options_.system.empty()) history_.push_back({"system", options_.system});
}

}  // namespace baton::cli
