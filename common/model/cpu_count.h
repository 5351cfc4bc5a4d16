// SPDX-License-Identifier: Apache-2.0
// How many threads may run at once without being throttled.
#pragma once

#include <cstdint>
#include <string>

namespace baton::model {

// Whole CPUs that the cgroup quotas (version 2 `cpu.max`, version 1
// `cpu.cfs_quota_us`) above this process allow, rounded down but at least 1;
// UINT32_MAX without a quota. `root` is put before the paths; tests give a
// folder.
uint32_t CgroupCpus(const std::string& root = "");

}  // namespace baton::model
