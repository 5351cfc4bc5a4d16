// SPDX-License-Identifier: Apache-2.0
#include "common/sched/planner.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/kv/layout.h"

namespace baton::sched {
namespace {

uint32_t RoundDown(uint32_t tokens) { return tokens / kv::kBlockTokens * kv::kBlockTokens; }
uint32_t RoundUp(uint32_t tokens) { return RoundDown(tokens + kv::kBlockTokens - 1); }

// How many tokens of a prompt to run with `budget` left in this step, when a
// whole step takes `full` of them.
uint32_t ChunkSize(uint32_t remaining, uint32_t budget, uint32_t full) {
  if (remaining <= budget) return remaining;
  const uint32_t chunks = (remaining + full - 1) / full;
  const uint32_t even = RoundUp((remaining + chunks - 1) / chunks);
  return std::min(even, RoundDown(budget));
}

}  // namespace

std::vector<uint32_t> ServiceOrder(std::span<const Prompt> prompts, absl::Duration aging,
                                   absl::Time now) {
  const auto rank = [&](uint32_t index) {
    const Prompt& prompt = prompts[index];
    const bool aged = now - prompt.since >= aging;
    return std::tuple(!aged, aged ? 0 : prompt.remaining, prompt.arrival);
  };
  std::vector<uint32_t> order(prompts.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
  return order;
}

std::vector<Chunk> PlanChunks(std::span<const Prompt> prompts, uint32_t decode_rows,
                              const Limits& limits, absl::Time now) {
  const uint32_t full = std::min(limits.chunk_tokens, limits.max_step_tokens - decode_rows);
  uint32_t budget = full;
  std::vector<Chunk> chunks;
  for (uint32_t index : ServiceOrder(prompts, limits.aging, now)) {
    const uint32_t tokens =
        ChunkSize(prompts[index].remaining, budget, std::max(RoundDown(full), 1u));
    if (tokens == 0) continue;  // a later prompt may be short enough for the rest
    chunks.push_back({index, tokens});
    budget -= tokens;
  }
  return chunks;
}

}  // namespace baton::sched
