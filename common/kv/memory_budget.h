// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace baton::kv {

struct MemoryBudget {
  uint64_t available_bytes = 0;  // UINT64_MAX when nothing could be read
  std::string source;            // which limit that is, for error messages
};

// The least of MemAvailable (/proc/meminfo) and what the memory cgroups above
// this process leave (version 2, or the memory controller of version 1), page
// cache that the kernel would give back counted as free. `root` is put before
// the paths; tests give a folder.
MemoryBudget ReadMemoryBudget(const std::string& root = "");

}  // namespace baton::kv
