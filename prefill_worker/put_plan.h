// SPDX-License-Identifier: Apache-2.0
// How KV that is ready is cut into pieces for the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/kv/layout.h"
#include "common/transport/kv_transport.h"

namespace baton::prefill_worker {

// Covers all layers of blocks [block_begin, block_end) with ranges of at most
// `most_bytes` each (but at least one layer of one block), whole layers of all
// blocks before parts of them: while one piece is copied out, the next is
// copied in, and none fills a ring.
std::vector<transport::PutRange> PlanPuts(const kv::KvLayout& layout, uint32_t block_begin,
                                          uint32_t block_end, size_t most_bytes);

}  // namespace baton::prefill_worker
