// SPDX-License-Identifier: Apache-2.0
// Which prefixes a worker holds, and what has changed since somebody looked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton::prefix {

// What a reader must do to its copy: empty it if `reset`, then take out and put in.
struct Changes {
  bool reset = false;
  std::vector<uint64_t> added, removed;  // no digest is in both
  uint64_t version = 0;                  // where the next look begins

  bool empty() const { return !reset && added.empty() && removed.empty(); }
};

// Digests of cached blocks, bounded, with a bounded log of changes. A reader
// that comes too late gets everything.
//
// Thread-safe: one thread writes, any number read, each at its own pace.
class Journal final {
 public:
  struct Limits {
    size_t digests = 1 << 16;  // what is beyond is not announced
    size_t log = 1 << 12;      // changes that are remembered
  };
  Journal() : Journal(Limits()) {}
  explicit Journal(const Limits& limits) : limits_(limits) {}

  void Add(uint64_t digest);
  void Remove(uint64_t digest);

  // Grows with every change; 0 before the first.
  uint64_t version() const;
  // Changes after `version`; 0 asks for everything.
  Changes Since(uint64_t version) const;

 private:
  void Log(uint64_t digest);

  const Limits limits_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. Blocks by digest: two may share one.
  absl::flat_hash_map<uint64_t, uint32_t> held_;
  std::deque<uint64_t> log_;  // digests touched; the last one made version_
  uint64_t version_ = 0;
};

}  // namespace baton::prefix
