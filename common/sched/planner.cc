// SPDX-License-Identifier: Apache-2.0
#include "common/sched/planner.h"

#include <algorithm>

#include "common/kv/layout.h"

namespace baton::sched {
namespace {

uint32_t RoundDown(uint32_t tokens) { return tokens / kv::kBlockTokens * kv::kBlockTokens; }
uint32_t RoundUp(uint32_t tokens) { return RoundDown(tokens + kv::kBlockTokens - 1); }

// An equal part of a prompt that has every step to itself, `full` tokens at most.
uint32_t EvenChunk(uint32_t remaining, uint32_t full) {
  if (full == 0) return 0;
  const uint32_t chunks = (remaining + full - 1) / full;
  return std::min(RoundUp((remaining + chunks - 1) / chunks), full);
}

}  // namespace

std::vector<Chunk> PlanChunks(std::span<const uint32_t> remaining, std::span<const uint32_t> order,
                              uint32_t decode_rows, const Limits& limits) {
  const uint32_t full = std::min(limits.chunk_tokens, limits.max_step_tokens - decode_rows);
  uint32_t budget = full;
  std::vector<Chunk> chunks;
  for (const uint32_t index : order) {
    if (budget == 0) break;
    uint32_t tokens = std::min(remaining[index], budget);
    if (tokens < remaining[index]) {
      // Beside others it takes all it can get: they must not overtake it.
      tokens = order.size() == 1 ? EvenChunk(remaining[index], RoundDown(full)) : RoundDown(budget);
    }
    if (tokens == 0) continue;  // a later prompt may be short enough for the rest
    chunks.push_back({index, tokens});
    budget -= tokens;
  }
  return chunks;
}

uint32_t ChunkWithin(absl::Duration stall, const StepCosts& costs, uint32_t chunk_tokens) {
  uint32_t tokens = chunk_tokens;
  while (tokens > kv::kBlockTokens && costs.Prompt(0, tokens, tokens) > stall) {
    tokens -= kv::kBlockTokens;
  }
  return tokens;
}

}  // namespace baton::sched
