// SPDX-License-Identifier: Apache-2.0
// Flags for what an answer's text must be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/client.h"
#include "common/config/command_line.h"

namespace baton::cli {

class ConstraintFlags {
 public:
  void Register(config::CommandLine& line);
  // Reads the schema's file. Empty where no flag was given; whether several go
  // together is for others to say.
  absl::StatusOr<std::optional<Constraint>> Read() const;
  // Sets request->constraint where a flag was given.
  absl::Status Apply(Request* request) const;

 private:
  std::string json_mode_ = "off";
  std::optional<std::string> schema_file_, regex_;
  std::vector<std::string> choices_;
};

}  // namespace baton::cli
