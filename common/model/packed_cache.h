// SPDX-License-Identifier: Apache-2.0
// A folder of packed weights that all processes of a user share.
//
// One file per model, backend and precision, named after a digest of its
// description; beside it, while it is written, NAME.partial, and NAME.lock,
// which stays and is empty. Whoever holds the lock writes; a file appears under
// its name only when it is whole. A process killed at any moment leaves at
// most a partial file, which the next one to write overwrites or removes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/model/pack_sink.h"
#include "common/model/thread_pool.h"

namespace baton::model {

struct PackedCacheOptions {
  std::string folder;  // made when absent; empty: no cache
  // Of all files in the folder: before one is added, those go whose last use
  // is longest ago. Who has one of them mapped keeps it.
  uint64_t limit_bytes = uint64_t{64} << 30;
  // Models that pack to less are packed anew at every start.
  uint64_t least_bytes = uint64_t{8} << 20;
  // Longest wait for another process that packs the same weights.
  std::chrono::milliseconds lock_patience = std::chrono::minutes(2);
};

// The folder for what an operator says: a path, "off" (returns ""), or "" for
// $BATON_CACHE_DIR/packed, else ~/.cache/baton/packed, else none.
std::string PackedCacheFolder(const std::string& setting);

struct CachedWeights {
  std::shared_ptr<const std::byte> data;  // mapped read-only, shared
  bool packed_now = false;                // by this call
};

// Maps the file of `description`; when it is absent, stale or damaged, has
// `pack` put `data_bytes` into a new one first. `label` begins the file's name.
// Any error means: pack in memory instead.
absl::StatusOr<CachedWeights> MapOrPack(const PackedCacheOptions& options, const std::string& label,
                                        const std::string& description, uint64_t data_bytes,
                                        ThreadPool& pool,
                                        absl::FunctionRef<absl::Status(PackSink&)> pack);

}  // namespace baton::model
