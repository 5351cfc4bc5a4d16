// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace baton::metrics {
namespace {

uint32_t CountEntries(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error) return 0;
  return static_cast<uint32_t>(std::distance(begin(entries), end(entries)));
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  ProcessUsage usage;
  std::ifstream statm("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  if (statm >> total_pages >> resident_pages) {
    usage.resident_bytes = resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    usage.cpu_seconds = Seconds(used.ru_utime) + Seconds(used.ru_stime);
  }
  usage.open_descriptors = CountEntries("/proc/self/fd");
  usage.threads = CountEntries("/proc/self/task");
  return usage;
}

}  // namespace baton::metrics
