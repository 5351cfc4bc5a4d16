// SPDX-License-Identifier: Apache-2.0
// What this process uses, from /proc/self.
#pragma once

#include <cstdint>

namespace baton::metrics {

struct ProcessUsage {
  uint64_t resident_bytes = 0;
  double cpu_seconds = 0;
  uint32_t open_descriptors = 0;
  uint32_t threads = 0;
};

// Zeros where /proc cannot be read. Thread-safe.
ProcessUsage ReadProcessUsage();

}  // namespace baton::metrics
