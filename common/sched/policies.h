// SPDX-License-Identifier: Apache-2.0
// The policies, each in the file of its name; for the list in policy.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "common/sched/policy.h"

namespace baton::sched {

// First come, first served.
std::unique_ptr<Policy> MakeFcfs();

// Shortest remaining work first, with ageing. A job falls due when it has
// waited for Patience(), and the earliest due goes first. So a job is never
// overtaken by one that arrives later than that after it, but for prompts of
// less than a block that fill the rest of a step, and waits at most as long as
// one that came by so much later would under fcfs, and as those take. Due times do not
// move while jobs wait: the order among them is fixed, as long as nobody is
// served.
//
// More patience shortens the mean wait and lengthens the longest ones. With
// these two it takes two fifths off the mean of a chat trace at a utilization of
// 0.85 and leaves the 99th percentile about where it was (docs/performance.md).
inline constexpr double kPatience = 12;        // times its work
inline constexpr double kPatientTokens = 600;  // with more, by their square root

// Twelve times what the job takes, at most `aging`. Patience with jobs of more
// than 600 tokens grows more slowly than their work, by the square root of their
// length: they are few, and theirs are the longest waits.
inline absl::Duration Patience(const Job& job, absl::Duration aging) {
  const double counted = std::sqrt(std::min(1.0, kPatientTokens / job.tokens));
  return std::min(kPatience * counted * job.work, aging);
}

std::unique_ptr<Policy> MakeShortestWork(absl::Duration aging);

// Earliest deadline first; refuses what cannot be done in time. A job without
// a deadline, or with a far one, counts as due `aging` after its arrival: it is
// never overtaken by one that arrives later than that after it.
std::unique_ptr<Policy> MakeDeadlineFirst(absl::Duration aging);

// Highest priority first; equal ones by arrival. A job rises by one class for
// each `aging` it has waited, so that in the worst case it is overtaken for
// `aging` times the number of classes.
std::unique_ptr<Policy> MakePriorityClasses(absl::Duration aging);

// Weighted fairness among tenants: the one that has used least of its share
// goes first. Of backlogged tenants none gets more than its share but for one
// job. Algorithm: virtual token counters (Sheng et al., "Fairness in Serving
// Large Language Models", OSDI 2024), with two resources in one unit.
std::unique_ptr<Policy> MakeFairShares(
    const std::map<std::string, double, std::less<>>& tenant_weights);

// Indices of `jobs` by `key(job)`, smallest first, equal ones by arrival.
template <typename Key>
std::vector<uint32_t> OrderBy(std::span<const Job> jobs, Key key) {
  std::vector<std::tuple<decltype(key(jobs[0])), uint64_t, uint32_t>> ranked;
  ranked.reserve(jobs.size());
  for (uint32_t i = 0; i < jobs.size(); ++i) ranked.emplace_back(key(jobs[i]), jobs[i].arrival, i);
  std::sort(ranked.begin(), ranked.end());
  std::vector<uint32_t> order;
  order.reserve(jobs.size());
  for (const auto& [unused, arrival, index] : ranked) order.push_back(index);
  return order;
}

}  // namespace baton::sched
