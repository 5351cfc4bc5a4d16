// SPDX-License-Identifier: Apache-2.0
// Constraints in the JSON of requests.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "baton/client.h"

namespace baton::cli {

// {"json": "object"}, {"json_schema": {...} or its text}, {"regex": "..."} or
// {"choices": ["...", ...]}, as JSON text. INVALID_ARGUMENT names the key that
// is wrong; whether several are set is the router's to say.
absl::StatusOr<Constraint> ParseConstraint(const std::string& json);

}  // namespace baton::cli
