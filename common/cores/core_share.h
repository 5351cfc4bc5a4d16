// SPDX-License-Identifier: Apache-2.0
// Divides a machine's cores among the workers that compute at the moment.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cores/share_table.h"

namespace baton::cores {

// CPUs for one of the busy workers, out of `cpus`: all when only its kind is
// busy, else a half: decode workers the first, prefill workers the last. Each
// kind divides its part among its workers; with more workers than CPUs, some
// get the same one. Never empty. The first entry is for the worker's main
// thread: a worker's main thread stays where it is when another kind joins.
// REQUIRES: cpus is not empty; busy counts the worker itself.
std::vector<uint32_t> Divide(std::span<const uint32_t> cpus, Kind kind, const Busy& busy);

// CPUs that this process may use, ascending.
std::vector<uint32_t> AllowedCpus();

// One worker's view. Begin and End surround every step: what others see of a
// worker follows from the steps it runs, and from nothing that must be undone.
//
// Thread safety: one thread.
class CoreShare final {
 public:
  // All workers of this user whose affinity is the same set of CPUs share
  // them. Uses a file in `folder`; errors as ShareTable::Open.
  static absl::StatusOr<std::unique_ptr<CoreShare>> Create(Kind kind,
                                                           const std::string& folder = "/dev/shm");

  // A step begins: the CPUs to run it on, one thread on each. Valid until the
  // next call.
  const std::vector<uint32_t>& Begin();
  // Within a step: those to go on with, now that others have come or gone.
  const std::vector<uint32_t>& Again();
  // It has ended. For some milliseconds more the worker counts as busy, since
  // the next step mostly follows at once.
  void End();
  // The next step does not follow at once: no longer busy.
  void Release();

 private:
  CoreShare(ShareTable table, Kind kind, std::vector<uint32_t> cpus);

  ShareTable table_;
  const Kind kind_;
  const std::vector<uint32_t> cpus_;
  std::vector<uint32_t> mine_;
};

}  // namespace baton::cores
