// SPDX-License-Identifier: Apache-2.0
#include "common/model/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>
#include <thread>

#include "common/model/load.h"

namespace baton::model {
namespace {

constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

uint32_t WholeCpus(double quota, double period) {
  if (quota <= 0 || period <= 0) return kUnlimited;
  return static_cast<uint32_t>(std::clamp(quota / period, 1.0, 1e6));
}

// Version 2: "max 100000" or "150000 100000".
uint32_t QuotaOfV2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period ? WholeCpus(quota, period) : kUnlimited;
}

// Version 1: -1 when there is none.
uint32_t QuotaOfV1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? WholeCpus(quota, period) : kUnlimited;
}

// The least over `path` and every folder above it.
template <typename Quota>
uint32_t LeastUpwards(const std::string& mount, std::string path, Quota quota) {
  uint32_t least = quota(mount);
  while (!path.empty() && path != "/") {
    least = std::min(least, quota(mount + path));
    path.resize(path.rfind('/'));
  }
  return least;
}

bool HasController(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    controllers.remove_prefix(comma == std::string_view::npos ? controllers.size() : comma + 1);
  }
  return false;
}

}  // namespace

uint32_t CgroupCpus(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  uint32_t least = std::min(QuotaOfV2(mount), QuotaOfV1(mount + "/cpu"));
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // id:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string path = line.substr(second + 1);
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      least = std::min(least, LeastUpwards(mount, path, QuotaOfV2));
    } else if (HasController(controllers, "cpu")) {
      least = std::min(least, LeastUpwards(mount + "/cpu", path, QuotaOfV1));
    }
  }
  return least;
}

uint32_t UsableThreads() {
  cpu_set_t allowed;
  uint32_t cpus = std::max(1u, std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    cpus = static_cast<uint32_t>(std::max(1, CPU_COUNT(&allowed)));
  }
  return std::min(cpus, CgroupCpus());
}

}  // namespace baton::model
