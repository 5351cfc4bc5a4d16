// SPDX-License-Identifier: Apache-2.0
// Descriptors and threads of this process, to see that none stays behind.
#pragma once

#include <filesystem>
#include <iterator>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton::transport {

inline size_t CountEntries(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}
inline size_t OpenFds() { return CountEntries("/proc/self/fd"); }
inline size_t Threads() { return CountEntries("/proc/self/task"); }

// Whether `count` comes down to `most` within a few seconds.
template <typename F>
bool SettlesAt(F count, size_t most) {
  for (const absl::Time end = absl::Now() + absl::Seconds(5); absl::Now() < end;) {
    if (count() <= most) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

}  // namespace baton::transport
