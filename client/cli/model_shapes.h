// SPDX-License-Identifier: Apache-2.0
// Shapes of models that people run, without their weights.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::cli {

// Names, the default first: "chatglm2-6b", "llama2-7b", "smollm2-135m", "tiny".
std::vector<std::string> ShapeNames();

// INVALID_ARGUMENT lists the names.
absl::StatusOr<checkpoint::ModelConfig> FindShape(const std::string& name);

}  // namespace baton::cli
