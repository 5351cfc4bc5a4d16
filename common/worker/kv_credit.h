// SPDX-License-Identifier: Apache-2.0
// How many KV blocks a router may use here.
#pragma once

#include <cstdint>

#include "common/engine/engine.h"

namespace baton::worker {

// What the sequences of `owner` hold or were promised, and its equal part among
// `routers` of what nobody was promised, but for a block that each running
// sequence may grow by. REQUIRES: routers >= 1.
uint32_t KvCredit(const engine::Load& load, uint64_t owner, uint32_t routers);

}  // namespace baton::worker
