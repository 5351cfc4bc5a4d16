// SPDX-License-Identifier: Apache-2.0
#include "common/base/port_file.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace baton {

absl::Status WritePortFile(const std::string& path, const Ports& ports) {
  nlohmann::json content = {{"listen", ports.listen}, {"pid", getpid()}};
  if (!ports.workers.empty()) content["workers"] = ports.workers;
  if (!ports.metrics.empty()) content["metrics"] = ports.metrics;
  const std::string unfinished = absl::StrCat(path, ".tmp");
  std::ofstream file(unfinished, std::ios::trunc);
  file << content.dump() << "\n";
  file.close();
  if (!file || rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("--port-file: cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace baton
