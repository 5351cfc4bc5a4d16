// SPDX-License-Identifier: Apache-2.0
#include "common/worker/host_id.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace baton::worker {
namespace {

// FNV-1a, 64 bits (Fowler, Noll, Vo): stable across builds, unlike absl::Hash.
uint64_t Fnv1a(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string HostId() {
  struct stat mounts = {};
  stat("/proc/self/ns/mnt", &mounts);
  const std::string facts = absl::StrCat(FirstLine("/proc/sys/kernel/random/boot_id"), "\n",
                                         HostName(), "\n", mounts.st_dev, ":", mounts.st_ino);
  return absl::StrCat(absl::Hex(Fnv1a(facts), absl::kZeroPad16));
}

}  // namespace baton::worker
