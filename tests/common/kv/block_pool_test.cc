// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace baton::kv {
namespace {

class BlockPoolTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(pool_.CheckIntegrity().ok()); }

  BlockPool pool_{4};
};

TEST_F(BlockPoolTest, AllocationIsAllOrNothing) {
  ASSERT_TRUE(pool_.Allocate(3, Owner::kRequest).ok());

  const auto refused = pool_.Allocate(2, Owner::kRequest);

  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().message(), "need 2 KV blocks, 1 of 4 are free");
  EXPECT_EQ(pool_.free_blocks(), 1u);
}

TEST_F(BlockPoolTest, SharedBlockOutlivesTheRequestThatMadeIt) {
  const BlockId block = pool_.Allocate(1, Owner::kRequest)->front();
  pool_.Retain(block, Owner::kPrefixCache);

  pool_.Release(block, Owner::kRequest);
  EXPECT_EQ(pool_.free_blocks(), 3u);
  EXPECT_EQ(pool_.held_by(Owner::kRequest), 0u);

  pool_.Release(block, Owner::kPrefixCache);
  EXPECT_EQ(pool_.free_blocks(), 4u);
}

TEST_F(BlockPoolTest, OwnerThatHoldsTwiceReleasesTwice) {
  const BlockId block = pool_.Allocate(1, Owner::kRequest)->front();
  pool_.Retain(block, Owner::kRequest);

  pool_.Release(block, Owner::kRequest);
  EXPECT_EQ(pool_.held_by(Owner::kRequest), 1u);

  pool_.Release(block, Owner::kRequest);
  EXPECT_EQ(pool_.held_by(Owner::kRequest), 0u);
}

// A writer may still read a cancelled request's block: it must not be handed
// to the next request meanwhile.
TEST_F(BlockPoolTest, BlockInTransferIsNotGivenOutAfterItsRequestEnds) {
  const BlockId pinned = pool_.Allocate(1, Owner::kRequest)->front();
  pool_.Retain(pinned, Owner::kTransfer);
  pool_.Release(pinned, Owner::kRequest);

  const auto others = pool_.Allocate(3, Owner::kRequest);
  ASSERT_TRUE(others.ok());
  for (BlockId block : *others) EXPECT_NE(block, pinned);
  EXPECT_FALSE(pool_.Allocate(1, Owner::kRequest).ok());

  pool_.Release(pinned, Owner::kTransfer);
  EXPECT_EQ(pool_.Allocate(1, Owner::kRequest)->front(), pinned);
}

TEST(BlockPool, RandomUseKeepsCountsAndInvariants) {
  std::mt19937 random(7);
  BlockPool pool(50);
  std::multiset<std::pair<uint32_t, Owner>> held;
  for (int i = 0; i < 5000; ++i) {
    const auto owner = static_cast<Owner>(random() % kOwnerCount);
    if (random() % 2 == 0) {
      if (auto blocks = pool.Allocate(random() % 8, owner); blocks.ok()) {
        for (BlockId block : *blocks) held.emplace(static_cast<uint32_t>(block), owner);
      }
    } else if (!held.empty()) {
      auto it = std::next(held.begin(), static_cast<int>(random() % held.size()));
      if (random() % 3 == 0) {
        pool.Retain(BlockId{it->first}, owner);
        held.emplace(it->first, owner);
      } else {
        pool.Release(BlockId{it->first}, it->second);
        held.erase(it);
      }
    }
    std::set<uint32_t> distinct;
    for (const auto& [block, unused] : held) distinct.insert(block);
    ASSERT_EQ(pool.free_blocks(), 50 - distinct.size());
  }
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  const std::set<std::pair<uint32_t, Owner>> pairs(held.begin(), held.end());
  for (size_t owner = 0; owner < kOwnerCount; ++owner) {
    const auto count = std::count_if(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return pair.second == static_cast<Owner>(owner);
    });
    EXPECT_EQ(pool.held_by(static_cast<Owner>(owner)), count);
  }
}

TEST(BlockPool, MovedBlockKeepsItsHoldersAndIsHandedOutLast) {
  BlockPool pool(10);
  ASSERT_EQ(pool.Allocate(8, Owner::kRequest)->size(), 8u);  // 0 to 7
  EXPECT_EQ(pool.high(), 8u);
  const BlockId high{7}, low{2};
  pool.Retain(high, Owner::kPrefixCache);
  pool.Release(low, Owner::kRequest);
  pool.PreferBelow(5);
  EXPECT_EQ(pool.MoveBelow(high, 5), low);
  EXPECT_TRUE(pool.Holds(low, Owner::kRequest) && pool.Holds(low, Owner::kPrefixCache));
  EXPECT_TRUE(pool.IsFree(high));
  EXPECT_EQ(pool.MoveBelow(BlockId{6}, 5), std::nullopt) << "none is free there";
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(pool.held_by(Owner::kRequest), 7u);
  pool.ForgetHigh();
  EXPECT_EQ(pool.high(), 7u);
  EXPECT_NE(pool.Allocate(1, Owner::kRequest)->front(), high);
  EXPECT_NE(pool.Allocate(1, Owner::kRequest)->front(), high);
  EXPECT_EQ(pool.Allocate(1, Owner::kRequest)->front(), high);
}

TEST_F(BlockPoolTest, KnowsWhatThePrefixCacheAloneHolds) {
  const BlockId block = pool_.Allocate(1, Owner::kRequest)->front();
  pool_.Retain(block, Owner::kPrefixCache);
  EXPECT_EQ(pool_.cache_only(), 0u);
  EXPECT_FALSE(pool_.CacheOnly(block));
  pool_.Release(block, Owner::kRequest);
  EXPECT_EQ(pool_.cache_only(), 1u);
  EXPECT_TRUE(pool_.CacheOnly(block));
  EXPECT_EQ(pool_.TakeReleased(), std::vector<BlockId>{block});
  EXPECT_TRUE(pool_.TakeReleased().empty());
  pool_.Retain(block, Owner::kTransfer);
  EXPECT_EQ(pool_.cache_only(), 0u);
  EXPECT_TRUE(pool_.CheckIntegrity().ok());
  pool_.Release(block, Owner::kTransfer);
  pool_.Release(block, Owner::kPrefixCache);
  EXPECT_EQ(pool_.cache_only(), 0u);
  EXPECT_EQ(pool_.free_blocks(), 4u);
}

}  // namespace
}  // namespace baton::kv
