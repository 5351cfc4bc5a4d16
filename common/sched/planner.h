// SPDX-License-Identifier: Apache-2.0
// What a step runs beside its decode rows: a pure function of plain state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "common/sched/step_costs.h"

namespace baton::sched {

struct Limits {
  uint32_t chunk_tokens = 512;      // of prompts per step; a multiple of 32
  uint32_t max_step_tokens = 1024;  // prompts and decode rows together
};

// `tokens` more tokens of the prompt with this index.
struct Chunk {
  uint32_t prompt = 0;
  uint32_t tokens = 0;
};

// The prompt chunks of a step that also runs `decode_rows` rows. `remaining`
// has the tokens of each prompt that are still to be computed, `order` (of a
// Policy) says in which order to serve them.
//
// At most limits.chunk_tokens together, and as much as the model's step has
// left beside the rows. A chunk is a multiple of 32 tokens or reaches the end
// of its prompt. A prompt gets what those before it cannot use. One that is
// alone and longer than a step is cut into equal chunks, so that no tiny rest
// is left at its end.
// REQUIRES: decode_rows <= max_step_tokens.
std::vector<Chunk> PlanChunks(std::span<const uint32_t> remaining, std::span<const uint32_t> order,
                              uint32_t decode_rows, const Limits& limits);

// The most prompt tokens, a multiple of 32, not above `chunk_tokens`, that hold
// decode rows up for no longer than `stall`. 32 when even those do, and
// `chunk_tokens` when no prompt was measured yet.
uint32_t ChunkWithin(absl::Duration stall, const StepCosts& costs, uint32_t chunk_tokens);

}  // namespace baton::sched
