// SPDX-License-Identifier: Apache-2.0
// The safetensors format (huggingface/safetensors, README, "Format").
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// Tensors of one file, in the order of their data. INVALID_ARGUMENT, with the
// file and the tensor, unless the header is at most 100,000,000 bytes, every
// size agrees with shape and type, and the tensors tile the data: no hole, no
// overlap, no tail.
absl::StatusOr<std::vector<TensorView>> ReadSafetensors(const File& file);

}  // namespace baton::checkpoint
