// SPDX-License-Identifier: Apache-2.0
#include "common/cores/core_share.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace baton::cores {
namespace {

// Longer than what a worker does between two steps: choose tokens, send them.
constexpr uint64_t kLingerNanoseconds = 5'000'000;

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// FNV-1a (Fowler, Noll and Vo): the same in every process and version.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::vector<uint32_t> Divide(std::span<const uint32_t> cpus, Kind kind, const Busy& busy) {
  std::vector<uint32_t> part(cpus.begin(), cpus.end());
  // Prefill workers count from the other end, so that both kinds can be
  // treated alike and meet in the middle.
  if (kind == Kind::kPrefill) std::reverse(part.begin(), part.end());
  const size_t half = kind == Kind::kDecode ? (part.size() + 1) / 2 : part.size() / 2;
  if (busy.decode > 0 && busy.prefill > 0) part.resize(std::max<size_t>(1, half));
  const uint64_t workers = kind == Kind::kDecode ? busy.decode : busy.prefill;
  const uint64_t begin = part.size() * busy.rank / workers;
  const uint64_t end = std::max(begin + 1, part.size() * (busy.rank + 1) / workers);
  return {part.begin() + static_cast<ptrdiff_t>(begin), part.begin() + static_cast<ptrdiff_t>(end)};
}

std::vector<uint32_t> AllowedCpus() {
  std::vector<uint32_t> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (uint32_t i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &allowed)) cpus.push_back(i);
    }
  }
  if (!cpus.empty()) return cpus;
  // More CPUs than a cpu_set_t holds.
  for (uint32_t i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    cpus.push_back(i);
  }
  return cpus;
}

absl::StatusOr<std::unique_ptr<CoreShare>> CoreShare::Create(Kind kind, const std::string& folder) {
  std::vector<uint32_t> cpus = AllowedCpus();
  const std::string path = absl::StrCat(folder, "/baton-cores-", geteuid(), "-",
                                        absl::Hex(Hash(absl::StrJoin(cpus, ","))));
  BATON_ASSIGN_OR_RETURN(ShareTable table, ShareTable::Open(path, kind));
  return std::unique_ptr<CoreShare>(new CoreShare(std::move(table), kind, std::move(cpus)));
}

CoreShare::CoreShare(ShareTable table, Kind kind, std::vector<uint32_t> cpus)
    : table_(std::move(table)), kind_(kind), cpus_(std::move(cpus)) {}

const std::vector<uint32_t>& CoreShare::Begin() {
  table_.SetBusyUntil(ShareTable::kForever);
  return Again();
}

const std::vector<uint32_t>& CoreShare::Again() {
  mine_ = Divide(cpus_, kind_, table_.Look(Now()));
  return mine_;
}

void CoreShare::Release() { table_.SetBusyUntil(0); }

void CoreShare::End() { table_.SetBusyUntil(Now() + kLingerNanoseconds); }

}  // namespace baton::cores
