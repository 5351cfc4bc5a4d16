// SPDX-License-Identifier: Apache-2.0
// Text named on a command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace baton::cli {

// The whole of a file, of standard input when `path` is "-". NOT_FOUND names
// the flag and the file; INVALID_ARGUMENT when it is over 64 MiB.
absl::StatusOr<std::string> ReadText(const std::string& flag, const std::string& path);

}  // namespace baton::cli
