// SPDX-License-Identifier: Apache-2.0
#include "common/worker/kv_credit.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::worker {
namespace {

engine::Load LoadOf(uint32_t total, uint32_t running,
                    std::vector<std::pair<uint64_t, uint32_t>> committed) {
  engine::Load load;
  load.kv_blocks_total = load.kv_blocks_free = total;
  load.running_sequences = running;
  load.committed_blocks = std::move(committed);
  // Half of what was committed is held; none of it is shared.
  for (const auto& [owner, blocks] : load.committed_blocks) {
    const uint32_t held = std::min(blocks / 2, load.kv_blocks_free);
    load.kv_blocks_free -= held;
    load.promised_blocks += blocks - held;
  }
  load.kv_blocks_reclaimable = load.kv_blocks_free / 2;
  load.kv_blocks_free -= load.kv_blocks_reclaimable;
  return load;
}

TEST(KvCredit, IsWhatARouterHasAndItsPartOfTheRest) {
  EXPECT_EQ(KvCredit(LoadOf(100, 0, {}), 1, 1), 100u);
  // 100 less 30 and 20, and 10 to grow by.
  const engine::Load load = LoadOf(100, 10, {{1, 30}, {2, 20}});
  EXPECT_EQ(KvCredit(load, 1, 2), 50u);
  EXPECT_EQ(KvCredit(load, 2, 2), 40u);
  EXPECT_EQ(KvCredit(load, 3, 3), 13u);
}

TEST(KvCredit, OfAFullPoolIsWhatARouterHas) {
  const engine::Load load = LoadOf(50, 10, {{1, 30}, {2, 25}});
  EXPECT_EQ(KvCredit(load, 1, 2), 30u);
  EXPECT_EQ(KvCredit(load, 2, 2), 25u);
}

TEST(KvCredit, OfAllRoutersTogetherNeverOverbooksThePool) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto routers = static_cast<uint32_t>(1 + random() % 5);
    std::vector<std::pair<uint64_t, uint32_t>> committed;
    uint32_t held = 0;
    for (uint64_t owner = 1; owner <= routers; ++owner) {
      committed.emplace_back(owner, random() % 50);
      held += committed.back().second;
    }
    const auto total = static_cast<uint32_t>(held + random() % 100);
    const engine::Load load = LoadOf(total, random() % 20, committed);
    uint32_t sum = 0;
    for (uint64_t owner = 1; owner <= routers; ++owner) sum += KvCredit(load, owner, routers);
    ASSERT_LE(sum, total);
  }
}

}  // namespace
}  // namespace baton::worker
