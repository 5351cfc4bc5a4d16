// SPDX-License-Identifier: Apache-2.0
// What a step of a model has to compute and to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/bench/machine.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/compute_plan.h"
#include "kernels/api/linear.h"

namespace baton::cli {

// Matrices of one shape and format.
struct MatrixWork {
  std::string name;  // "gate, up": whose they are
  const checkpoint::LinearView* example = nullptr;
  const kernels::LinearFormat* format = nullptr;
  uint32_t outputs = 0, inputs = 0;
  uint32_t count = 0;                                           // of the whole model
  bool head = false;                                            // computes rows of logits only
  uint64_t bytes = 0;                                           // of one, packed
  double operations() const { return 2.0 * outputs * inputs; }  // of one row
};

// Every shape of the model, in the order of its layers, the head last.
std::vector<MatrixWork> ListMatrices(const checkpoint::ModelWeights& weights,
                                     const model::ComputePlan& plan);

// A step, or steps that read the weights once each.
struct StepWork {
  uint32_t steps = 1;
  double rows = 0;  // positions computed
  double logit_rows = 0;
  double attended = 0;   // pairs of a position and one that it sees
  double kv_tokens = 0;  // whose K and V are read
};
// A prompt in steps of `chunk` tokens; a step of `batch` sequences that see
// `context` tokens each.
StepWork PromptWork(uint32_t tokens, uint32_t chunk);
StepWork DecodeWork(uint32_t batch, double context);

// The least seconds that the machine's peaks leave for some work: the longer of
// computing, each kernel at the rate of its instruction, and of reading weights
// and KV, at the rate at which they come.
struct Roofline {
  double compute_seconds = 0, read_seconds = 0;
  double seconds() const { return compute_seconds > read_seconds ? compute_seconds : read_seconds; }
  // "compute" or "memory"
  const char* limit() const { return compute_seconds > read_seconds ? "compute" : "memory"; }
};
Roofline RooflineOf(const StepWork& work, const std::vector<MatrixWork>& matrices,
                    const checkpoint::ModelConfig& config, const model::ComputePlan& plan,
                    const std::vector<InstructionPeak>& peaks, double bytes_per_second);

}  // namespace baton::cli
