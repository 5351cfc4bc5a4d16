// SPDX-License-Identifier: Apache-2.0
// The subcommands of `baton bench`, one per file.
#pragma once

#include <memory>

#include "client/cli/command.h"

namespace baton::cli {

std::unique_ptr<Command> MakeBenchMachineCommand(config::CommandLine& bench);
std::unique_ptr<Command> MakeBenchKernelsCommand(config::CommandLine& bench);
std::unique_ptr<Command> MakeBenchModelCommand(config::CommandLine& bench);

}  // namespace baton::cli
