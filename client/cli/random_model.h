// SPDX-License-Identifier: Apache-2.0
// Checkpoints of random weights: a model's speed and memory without the model.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::cli {

// Writes `path`, a GGUF of the shape `config`, without a tokenizer. Norms are
// one, biases zero, the values of a matrix [out, in] bell-shaped with mean zero
// and deviation 1 / sqrt(in), so that activations neither grow nor vanish.
// `weights`: kQ4_0, kQ8_0 or kF16, for all matrices and the embedding. Equal
// arguments give equal bytes. Memory: some MiB whatever the size.
// ALREADY_EXISTS rather than overwriting; on any error no file is left.
absl::Status WriteRandomModel(const checkpoint::ModelConfig& config, checkpoint::TensorType weights,
                              uint64_t seed, const std::string& path);

}  // namespace baton::cli
