// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace baton::checkpoint {

// SHA-256, in hex, over the configuration (without the name), every tensor's
// name, type and shape, and samples spread over its bytes.
std::string ComputeFingerprint(const ModelConfig& config, const std::vector<TensorView>& tensors);

}  // namespace baton::checkpoint
