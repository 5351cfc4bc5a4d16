// SPDX-License-Identifier: Apache-2.0
// A prefill worker in virtual time: the real policy and planner, steps that
// take what the cost model says.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/sched/planner.h"
#include "common/sched/policy.h"
#include "common/sched/step_costs.h"

namespace baton::sched {

struct Arrival {
  absl::Duration at;
  uint32_t tokens = 1;
  absl::Duration deadline = absl::InfiniteDuration();  // after `at`
  int32_t priority = 0;
  std::string tenant = {};
};

struct Served {
  absl::Duration start, end;  // of its first and its last chunk
  bool refused = false;
};

struct Worker {
  Limits limits;
  StepCosts costs;
};

// Serves `arrivals` (by time) to the end. In the order of `arrivals`.
std::vector<Served> Replay(std::span<const Arrival> arrivals, Policy& policy, const Worker& worker);

// What a prompt takes when nothing else runs.
absl::Duration WorkAlone(uint32_t tokens, const Worker& worker);

}  // namespace baton::sched
