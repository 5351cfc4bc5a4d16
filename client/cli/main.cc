// SPDX-License-Identifier: Apache-2.0
// The `baton` command: one file per subcommand.
#include <memory>
#include <optional>
#include <vector>

#include "client/cli/command.h"
#include "common/config/command_line.h"

int main(int argc, char** argv) {
  using namespace baton;
  config::CommandLine line("baton", "Talks with a Baton cluster, and looks into models.");
  std::vector<std::unique_ptr<cli::Command>> commands;
  commands.push_back(cli::MakeGenerateCommand(line));
  commands.push_back(cli::MakeChatCommand(line));
  commands.push_back(cli::MakeStatusCommand(line));
  commands.push_back(cli::MakeTokenizeCommand(line));
  commands.push_back(cli::MakeInspectCommand(line));
  commands.push_back(cli::MakeKvBudgetCommand(line));
  commands.push_back(cli::MakeMakeModelCommand(line));
  commands.push_back(cli::MakeScoreCommand(line));
  commands.push_back(cli::MakeSampleCheckCommand(line));
  commands.push_back(cli::MakeBenchCommand(line));
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;
  for (const std::unique_ptr<cli::Command>& command : commands) {
    if (command->chosen()) return command->Run();
  }
  return cli::kExitUsage;
}
