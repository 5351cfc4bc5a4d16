// SPDX-License-Identifier: Apache-2.0
// Tells scripts which ports a process got.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton {

struct Ports {
  std::string listen;   // HOST:PORT of the gRPC server
  std::string workers;  // HOST:PORT where workers attach; empty: a worker's own file
  std::string metrics;  // HOST:PORT; empty: none
};

// Writes {"listen": ..., "workers": ..., "metrics": ..., "pid": ...} to `path`, whole or not
// at all.
absl::Status WritePortFile(const std::string& path, const Ports& ports);

}  // namespace baton
