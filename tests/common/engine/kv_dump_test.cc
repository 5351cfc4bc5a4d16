// SPDX-License-Identifier: Apache-2.0
// Who holds which block, and why, as operators are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using ::testing::ElementsAre;

KvDump Dump(Engine& engine) {
  auto result = std::make_shared<std::promise<KvDump>>();
  std::future<KvDump> future = result->get_future();
  engine.DumpKv([result](KvDump dump) { result->set_value(std::move(dump)); });
  return future.get();
}

// What must hold of every dump: runs cover the pool once, and sums are theirs.
void ExpectConsistent(const KvDump& dump) {
  uint32_t next = 0, requests = 0, transfers = 0, cached = 0, reclaimable = 0, free = 0;
  std::vector<uint32_t> owned(dump.owners.size());
  for (const KvDump::Run& run : dump.runs) {
    EXPECT_EQ(run.first, next);
    ASSERT_GT(run.count, 0u);
    next += run.count;
    requests += run.requests > 0 ? run.count : 0;
    transfers += run.transfers > 0 ? run.count : 0;
    cached += run.prefix_cache > 0 ? run.count : 0;
    const bool held = run.requests + run.transfers > 0;
    reclaimable += run.prefix_cache > 0 && !held ? run.count : 0;
    free += run.prefix_cache == 0 && !held ? run.count : 0;
    EXPECT_EQ(run.owners.empty(), !held) << "block " << run.first;
    for (const uint32_t owner : run.owners) {
      ASSERT_LT(owner, owned.size());
      owned[owner] += run.count;
    }
  }
  EXPECT_EQ(next, dump.blocks_total);
  EXPECT_EQ(requests, dump.blocks_requests);
  EXPECT_EQ(transfers, dump.blocks_transfers);
  EXPECT_EQ(cached, dump.blocks_prefix_cache);
  EXPECT_EQ(reclaimable, dump.blocks_reclaimable);
  EXPECT_EQ(free, dump.blocks_free);
  uint32_t swapped = 0;
  for (size_t i = 0; i < owned.size(); ++i) {
    EXPECT_GE(owned[i], std::max(dump.owners[i].blocks, dump.owners[i].transfer_blocks)) << i;
    EXPECT_LE(owned[i], dump.owners[i].blocks + dump.owners[i].transfer_blocks) << i;
    swapped += dump.owners[i].swapped_blocks;
  }
  EXPECT_EQ(swapped, dump.swapped_blocks);
}

SequenceSpec Named(uint64_t key, std::vector<TokenId> prompt, uint32_t tokens) {
  SequenceSpec spec = MakeSpec(key, std::move(prompt), tokens);
  spec.request_id = "request-" + std::to_string(key);
  spec.tenant = "tenant-" + std::to_string(key % 2);
  return spec;
}

TEST(KvDump, IdlePoolIsOneFreeRun) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(50), &recorder);
  const KvDump dump = Dump(*engine);
  ExpectConsistent(dump);
  ASSERT_EQ(dump.runs.size(), 1u);
  EXPECT_EQ(dump.blocks_free, 50u);
  EXPECT_EQ(dump.block_tokens, 32u);
  EXPECT_EQ(dump.block_bytes, kFakeBlock);
  EXPECT_TRUE(dump.owners.empty());
}

TEST(KvDump, SharedPrefixHasBothRequestsAndTheCacheForOwners) {
  std::mt19937 random(1);
  Recorder recorder;
  const FakeOptions fake{.delay_per_step = absl::Milliseconds(1)};
  const auto engine = MakeEngine(fake, PoolOf(100), &recorder);
  const std::vector<TokenId> shared = RandomPrompt(random, 96, {});
  for (uint64_t key = 1; key <= 2; ++key) {
    std::vector<TokenId> prompt = shared;
    prompt.push_back(static_cast<TokenId>(key));
    engine->Submit(Named(key, prompt, 2000));
    ASSERT_TRUE(recorder.WaitForTokens({1, key}, 2));
  }
  const KvDump dump = Dump(*engine);
  ExpectConsistent(dump);
  ASSERT_EQ(dump.owners.size(), 2u);
  EXPECT_EQ(dump.owners[0].request_id, "request-1");
  EXPECT_EQ(dump.owners[1].tenant, "tenant-0");
  EXPECT_EQ(dump.owners[1].state, "decoding");
  EXPECT_EQ(dump.owners[0].prompt_tokens, 97u);
  EXPECT_GE(dump.owners[0].computed_tokens, 97u);
  uint32_t common = 0;
  for (const KvDump::Run& run : dump.runs) {
    if (run.owners.size() < 2) continue;
    common += run.count;
    EXPECT_THAT(run.owners, ElementsAre(0, 1));
    EXPECT_EQ(run.requests, 2u);
    EXPECT_EQ(run.prefix_cache, 1u);
  }
  EXPECT_EQ(common, 3u);
  engine->CancelOwner(1, absl::CancelledError("enough"));
  ExpectIdle(*engine);
  const KvDump after = Dump(*engine);
  ExpectConsistent(after);
  EXPECT_TRUE(after.owners.empty());
  EXPECT_GE(after.blocks_reclaimable, 3u);
}

// Of a frozen hand-off both ends say that it holds their blocks.
TEST(KvDump, TransfersAreAReasonOfTheirOwn) {
  std::mt19937 random(2);
  Pair pair({}, PoolOf(40), PoolOf(40));
  const SequenceSpec spec = Named(1, RandomPrompt(random, 150, {}), 10);
  pair.sender.SetFrozen(true);
  pair.Submit(spec);
  ASSERT_TRUE(pair.prefill_heard.WaitForTokens(spec.ref, 1));
  ASSERT_TRUE(Eventually([&] { return pair.prefill->load().kv_blocks_requests == 0; }));
  const KvDump dump = Dump(*pair.prefill);
  ExpectConsistent(dump);
  ASSERT_EQ(dump.owners.size(), 1u);
  EXPECT_EQ(dump.owners[0].state, "handing_off");
  EXPECT_EQ(dump.owners[0].blocks, 0u);
  EXPECT_EQ(dump.owners[0].transfer_blocks, 5u);
  EXPECT_EQ(dump.blocks_transfers, 5u);
  pair.sender.SetFrozen(false);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  pair.ExpectIdle();
  EXPECT_EQ(Dump(*pair.prefill).blocks_transfers, 0u);
}

// Whatever goes on, a look between two steps is consistent.
TEST(KvDump, IsConsistentWhileSequencesAreSwappedAndRollOn) {
  std::mt19937 random(3);
  Recorder recorder;
  Options options = PoolOf(14);
  options.swap_bytes = 100 * kFakeBlock;
  options.chunk_tokens = 32;
  const auto engine = MakeEngine({}, options, &recorder);
  for (uint64_t key = 1; key <= 16; ++key) {
    SequenceSpec spec = Named(key, RandomPrompt(random, 1 + random() % 200, {}), 150);
    if (key % 3 == 0) spec.window = {.tokens = 64, .sinks = 32};
    engine->Submit(spec);
  }
  bool swapped = false, dropped = false;
  while (recorder.ended() < 16) {
    const KvDump dump = Dump(*engine);
    ExpectConsistent(dump);
    for (const KvDump::Owner& owner : dump.owners) {
      swapped |= owner.state == "preempted" && owner.swapped_blocks > 0;
      dropped |= owner.dropped_blocks > 0;
    }
  }
  EXPECT_TRUE(swapped && dropped);
  ExpectIdle(*engine);
}

}  // namespace
}  // namespace baton::engine
