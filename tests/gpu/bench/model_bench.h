// SPDX-License-Identifier: Apache-2.0
// Tokens per second of a whole model: prompts by length, decoding by batch.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/model/gpu/device.h"
#include "tests/gpu/bench/record.h"

namespace baton::gpu_bench {

struct ModelBenchOptions {
  std::string path;  // GGUF, or "embedded"
  model::gpu::DeviceName device;
  std::vector<uint32_t> prompts;  // tokens, each in one step
  std::vector<uint32_t> batches;  // sequences that decode together
  uint32_t context = 512;         // tokens of each before it decodes
  bool deterministic = true;
  uint32_t steps = 32;  // timed, behind two that are not
};

// Writes records of kind "load", "prompt" and "decode".
absl::Status BenchModel(const ModelBenchOptions& options, Records& records);

}  // namespace baton::gpu_bench
