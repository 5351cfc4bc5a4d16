// SPDX-License-Identifier: Apache-2.0
// `baton bench`: what the machine, the kernels and a model reach.
#include <memory>
#include <vector>

#include "client/cli/bench/bench_commands.h"

namespace baton::cli {
namespace {

class BenchCommand final : public Command {
 public:
  explicit BenchCommand(config::CommandLine& line) : Command(&line) {
    commands_.push_back(MakeBenchMachineCommand(line));
    commands_.push_back(MakeBenchKernelsCommand(line));
    commands_.push_back(MakeBenchModelCommand(line));
  }

  int Run() override {
    for (const std::unique_ptr<Command>& command : commands_) {
      if (command->chosen()) return command->Run();
    }
    return UsageError(
        "what? Write `baton bench machine`, `baton bench kernels` or `baton bench model`");
  }

 private:
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand(config::CommandLine& line) {
  return std::make_unique<BenchCommand>(*line.Command("bench", "Measure speed."));
}

}  // namespace baton::cli
