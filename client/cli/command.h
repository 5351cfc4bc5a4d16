// SPDX-License-Identifier: Apache-2.0
// What the subcommands of `baton` have in common.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "common/config/command_line.h"

namespace baton::cli {

// Exit codes of the command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a request or the work itself failed
inline constexpr int kExitUsage = 2;   // the command line makes no sense

// One subcommand: declares its flags when made, runs when chosen.
class Command {
 public:
  virtual ~Command() = default;
  bool chosen() const { return line_->chosen(); }
  // Returns the exit code; says on standard error what went wrong.
  virtual int Run() = 0;

 protected:
  explicit Command(config::CommandLine* line) : line_(line) {}

 private:
  config::CommandLine* line_;
};

// Prints "baton: MESSAGE" on standard error; kExitUsage for INVALID_ARGUMENT,
// else kExitFailed.
int Fail(const absl::Status& status);
int UsageError(const std::string& message);

// One per file.
std::unique_ptr<Command> MakeGenerateCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeChatCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeStatusCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeTokenizeCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeInspectCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeKvBudgetCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeMakeModelCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeSampleCheckCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeScoreCommand(config::CommandLine& line);
std::unique_ptr<Command> MakeBenchCommand(config::CommandLine& line);

}  // namespace baton::cli
