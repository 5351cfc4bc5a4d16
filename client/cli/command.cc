// SPDX-License-Identifier: Apache-2.0
#include "client/cli/command.h"

#include <iostream>
#include <string>

namespace baton::cli {

int Fail(const absl::Status& status) {
  std::cerr << "baton: " << std::string(status.message()) << "\n";
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

int UsageError(const std::string& message) {
  std::cerr << "baton: " << message << "\n";
  return kExitUsage;
}

}  // namespace baton::cli
