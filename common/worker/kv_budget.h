// SPDX-License-Identifier: Apache-2.0
// How large a worker's KV pool is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/kv/layout.h"

namespace baton::worker {

struct KvBudget {
  std::optional<uint64_t> tokens;  // --kv-tokens
  std::string memory;              // --kv-memory; empty: not given
};

// Blocks for the pool: what was asked for, or a quarter of `available_bytes`,
// at most 64 sequences of `context_tokens`. INVALID_ARGUMENT when not one
// block fits into what was asked for; RESOURCE_EXHAUSTED, with the arithmetic,
// when the machine has less.
absl::StatusOr<uint32_t> PlanKvBlocks(const KvBudget& budget, const kv::KvLayout& layout,
                                      uint32_t context_tokens, uint64_t available_bytes);

// Blocks of a pool of `pool_blocks` whose memory is kept when it is not needed,
// as --kv-floor asks: 0, for all of them, when it is empty. INVALID_ARGUMENT
// quotes it.
absl::StatusOr<uint32_t> PlanFloorBlocks(const std::string& flag, const kv::KvLayout& layout,
                                         uint32_t pool_blocks, uint64_t available_bytes);

// Resident memory of this process in bytes.
uint64_t ResidentBytes();

// Bytes of the swap area that --kv-swap asks for. INVALID_ARGUMENT quotes it.
absl::StatusOr<uint64_t> PlanSwapBytes(const std::string& flag, uint64_t available_bytes);

}  // namespace baton::worker
