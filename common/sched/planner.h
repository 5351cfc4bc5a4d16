// SPDX-License-Identifier: Apache-2.0
// What a step runs: a pure function of plain state and the clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"

namespace baton::sched {

// A prompt of which some tokens are still to be computed.
struct Prompt {
  uint32_t remaining = 0;  // tokens; at least 1
  absl::Time since;        // when it was submitted
  uint64_t arrival = 0;    // unique; breaks ties
};

struct Limits {
  uint32_t chunk_tokens = 512;      // of prompts per step; a multiple of 32
  uint32_t max_step_tokens = 1024;  // prompts and decode rows together
  absl::Duration aging = absl::Seconds(2);
};

// `tokens` more tokens of prompts[prompt].
struct Chunk {
  uint32_t prompt = 0;
  uint32_t tokens = 0;
};

// Indices of `prompts` in the order they should be served: first those that
// have waited for `aging` or longer, by arrival; then by remaining tokens,
// equal ones by arrival. So no prompt is overtaken by one that arrives more
// than `aging` after it.
std::vector<uint32_t> ServiceOrder(std::span<const Prompt> prompts, absl::Duration aging,
                                   absl::Time now);

// The prompt chunks of a step that also runs `decode_rows` rows.
//
// At most limits.chunk_tokens together, and as much as the model's step has
// left beside the rows; in ServiceOrder. A chunk is a multiple of 32 tokens or
// reaches the end of its prompt. A prompt longer than a step is cut into equal
// chunks, so that no tiny rest is left at its end.
// REQUIRES: decode_rows <= max_step_tokens.
std::vector<Chunk> PlanChunks(std::span<const Prompt> prompts, uint32_t decode_rows,
                              const Limits& limits, absl::Time now);

}  // namespace baton::sched
