// SPDX-License-Identifier: Apache-2.0
#include "common/kv/memory_budget.h"

#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace baton::kv {
namespace {

// The names that one version of the cgroup file system uses.
struct CgroupFiles {
  std::string mount, limit, usage, reclaimable_key;
};

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// The number after `key` in a file of lines "key number ...".
std::optional<uint64_t> ReadKey(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

void Lower(MemoryBudget& budget, uint64_t bytes, const std::string& source) {
  if (bytes >= budget.available_bytes) return;
  budget.available_bytes = bytes;
  budget.source = source;
}

// Applies the limits of `group` and of every group above it.
void LowerByCgroup(MemoryBudget& budget, const CgroupFiles& files, std::string group) {
  while (true) {
    const std::string folder = files.mount + group + "/";
    if (const auto limit = ReadNumber(folder + files.limit)) {
      const uint64_t usage = ReadNumber(folder + files.usage).value_or(0);
      const uint64_t cache = ReadKey(folder + "memory.stat", files.reclaimable_key).value_or(0);
      const uint64_t used = usage > cache ? usage - cache : 0;
      Lower(budget, *limit > used ? *limit - used : 0, "the memory limit of cgroup " + folder);
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

MemoryBudget ReadMemoryBudget(const std::string& root) {
  MemoryBudget budget{std::numeric_limits<uint64_t>::max(), "no known limit"};
  if (const auto kib = ReadKey(root + "/proc/meminfo", "MemAvailable:")) {
    Lower(budget, *kib * 1024, "MemAvailable of /proc/meminfo");
  }
  // Lines "id:controllers:path"; version 2 has id 0 and no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers.empty()) {
      LowerByCgroup(budget,
                    {root + "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
                    group);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      LowerByCgroup(budget,
                    {root + "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                     "memory.usage_in_bytes", "total_inactive_file"},
                    group);
    }
  }
  return budget;
}

}  // namespace baton::kv
