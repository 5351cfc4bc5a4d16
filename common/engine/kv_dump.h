// SPDX-License-Identifier: Apache-2.0
// Who holds which KV blocks of an engine, and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace baton::engine {

struct KvDump {
  // A sequence that holds blocks, pins some for a transfer, or has copies of some
  // in the swap area.
  struct Owner {
    std::string request_id, tenant;
    uint64_t key = 0;
    std::string_view state;  // "decoding"; a literal
    uint32_t prompt_tokens = 0;
    uint32_t branches = 0;
    uint32_t computed_tokens = 0;  // the most that a branch has
    uint32_t blocks = 0;           // distinct ones
    uint32_t transfer_blocks = 0;
    uint32_t swapped_blocks = 0;
    uint32_t dropped_blocks = 0;  // given back, since no position to come sees them
  };
  // Blocks [first, first + count), held alike: by so many holders of each kind.
  struct Run {
    uint32_t first = 0, count = 0;
    uint32_t requests = 0, transfers = 0, prefix_cache = 0;
    std::vector<uint32_t> owners = {};  // indices into KvDump::owners, ascending

    bool SameHolders(const Run& other) const {
      return requests == other.requests && transfers == other.transfers &&
             prefix_cache == other.prefix_cache && owners == other.owners;
    }
  };

  absl::Time taken;
  uint64_t step = 0;
  uint32_t block_tokens = 0;
  uint64_t block_bytes = 0;
  uint32_t blocks_total = 0, blocks_free = 0;
  uint32_t blocks_requests = 0, blocks_transfers = 0, blocks_prefix_cache = 0;
  uint32_t blocks_reclaimable = 0;
  uint32_t swapped_blocks = 0;
  std::vector<Owner> owners;  // in order of arrival
  std::vector<Run> runs;      // cover every block once, in order
};

}  // namespace baton::engine
