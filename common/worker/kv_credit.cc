// SPDX-License-Identifier: Apache-2.0
#include "common/worker/kv_credit.h"

namespace baton::worker {

uint32_t KvCredit(const engine::Load& load, uint64_t owner, uint32_t routers) {
  uint64_t own = 0;
  for (const auto& [other, blocks] : load.committed_blocks) own += other == owner ? blocks : 0;
  const uint64_t free = load.kv_blocks_free + load.kv_blocks_reclaimable;
  const uint64_t taken = load.promised_blocks + load.running_sequences;
  const uint64_t left = free > taken ? free - taken : 0;
  return static_cast<uint32_t>(own + left / routers);
}

}  // namespace baton::worker
