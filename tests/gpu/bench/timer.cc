// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/timer.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "common/base/status_macros.h"

namespace baton::gpu_bench {
namespace {

constexpr int kMostReplays = 1000;

absl::StatusOr<double> SecondsOf(const model::gpu::Device& device, model::gpu::dev::Graph graph,
                                 int replays) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < replays; ++i) device.table().replay(graph, device.stream());
  BATON_RETURN_IF_ERROR(device.Finish());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::StatusOr<double> MedianSeconds(const model::gpu::Device& device, const TimerOptions& options,
                                     model::gpu::dev::Graph graph) {
  BATON_ASSIGN_OR_RETURN(const double once, SecondsOf(device, graph, 1));
  const double wanted = options.least_seconds / std::max(once, 1e-7);
  const int replays = std::clamp(static_cast<int>(wanted), 1, kMostReplays);
  std::vector<double> rounds;
  for (int i = 0; i < options.rounds; ++i) {
    BATON_ASSIGN_OR_RETURN(const double seconds, SecondsOf(device, graph, replays));
    rounds.push_back(seconds / replays);
  }
  std::nth_element(rounds.begin(), rounds.begin() + options.rounds / 2, rounds.end());
  return rounds[static_cast<size_t>(options.rounds) / 2];
}

}  // namespace

absl::StatusOr<double> SecondsPerRun(const model::gpu::Device& device, const TimerOptions& options,
                                     const std::function<void(int i)>& run) {
  run(0);  // loads the kernel, and what it keeps from run to run
  BATON_RETURN_IF_ERROR(device.Finish());
  device.table().begin_capture(device.stream());
  for (int i = 0; i < options.runs_of_graph; ++i) run(i);
  const model::gpu::dev::Graph graph = device.table().end_capture(device.stream());
  if (graph == nullptr) return absl::InternalError("the runs could not be captured");
  const absl::StatusOr<double> seconds = MedianSeconds(device, options, graph);
  device.table().drop_graph(graph);
  BATON_RETURN_IF_ERROR(seconds.status());
  return *seconds / options.runs_of_graph;
}

}  // namespace baton::gpu_bench
