// SPDX-License-Identifier: Apache-2.0
// Time of kernels by the host's clock: many runs in one captured graph, so that
// what a start costs is not in it.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "common/model/gpu/device.h"

namespace baton::gpu_bench {

struct TimerOptions {
  int runs_of_graph = 10;
  double least_seconds = 0.03;  // of a round
  int rounds = 5;
};

// Seconds of one `run(i)`, the median of the rounds. Each of the runs of a graph
// has an i of its own, so that it may use another copy of its inputs.
absl::StatusOr<double> SecondsPerRun(const model::gpu::Device& device, const TimerOptions& options,
                                     const std::function<void(int i)>& run);

}  // namespace baton::gpu_bench
