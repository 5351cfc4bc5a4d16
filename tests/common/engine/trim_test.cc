// SPDX-License-Identifier: Apache-2.0
// Blocks change their places while streams run on, and memory goes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;

constexpr uint32_t kStreams = 32;

class Trim : public ::testing::Test {
 protected:
  // Trims to one size and another until all have ended.
  void TrimUntilEnd(Engine& engine, Recorder& recorder, const std::vector<SequenceSpec>& specs) {
    uint32_t keep = 0;
    while (recorder.ended() < specs.size()) {
      engine.Trim(keep = (keep + 37) % 200);
      absl::SleepFor(absl::Microseconds(200));
    }
  }
  // Prompts of one beginning, so that blocks have several holders.
  std::vector<SequenceSpec> Specs(uint32_t output) {
    const std::vector<TokenId> shared = RandomPrompt(random_, 80, fake_);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= kStreams; ++key) {
      std::vector<TokenId> prompt = RandomPrompt(random_, 1 + random_() % 150, fake_);
      if (key % 2 == 0) prompt.insert(prompt.begin(), shared.begin(), shared.end());
      specs.push_back(MakeSpec(key, std::move(prompt), output / 2 + random_() % output));
    }
    return specs;
  }

  FakeOptions fake_{.delay_per_step = absl::Microseconds(300)};
  std::mt19937 random_{3};
};

TEST_F(Trim, MovesBlocksUnderLiveStreamsAndNoTokenChanges) {
  Recorder recorder;
  const auto engine = MakeEngine(fake_, PoolOf(1000), &recorder);
  const auto specs = Specs(200);
  for (const SequenceSpec& spec : specs) engine->Submit(spec);
  TrimUntilEnd(*engine, recorder, specs);
  for (const SequenceSpec& spec : specs) {
    const Heard heard = recorder.Of(spec.ref);
    ASSERT_TRUE(heard.end.status.ok()) << heard.end.status;
    EXPECT_EQ(heard.tokens, FakeReference(fake_, spec.prompt, spec.max_tokens)) << spec.ref.key;
  }
  EXPECT_GT(engine->load().blocks_moved, 100u);
  EXPECT_EQ(engine->load().preemptions, 0u);
  ExpectIdle(*engine);
}

// What a writer uses stays where it is.
TEST_F(Trim, LeavesHandOffsAlone) {
  Pair pair(fake_, PoolOf(600), PoolOf(600));
  const auto specs = Specs(40);
  for (const SequenceSpec& spec : specs) pair.Submit(spec);
  for (uint32_t keep = 0; pair.decode_heard.ended() < specs.size(); keep = (keep + 37) % 200) {
    pair.prefill->Trim(keep);
    pair.decode->Trim(keep);
    absl::SleepFor(absl::Microseconds(200));
  }
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    EXPECT_EQ(pair.Tokens(spec.ref), FakeReference(fake_, spec.prompt, spec.max_tokens));
  }
  EXPECT_GT(pair.decode->load().blocks_moved, 0u);
  pair.ExpectIdle();
}

TEST_F(Trim, PrefixesThatFitAreFoundAgainAndTheOthersAreGone) {
  Recorder recorder;
  const auto engine = MakeEngine(fake_, PoolOf(100), &recorder);
  uint64_t key = 0;
  const auto run = [&](const std::vector<TokenId>& prompt) {
    const SequenceSpec spec = MakeSpec(++key, prompt, 4);
    engine->Submit(spec);
    EXPECT_TRUE(recorder.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder.Of(spec.ref).tokens, FakeReference(fake_, prompt, 4));
    return recorder.Of(spec.ref).cached;
  };
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 8; ++i) prompts.push_back(RandomPrompt(random_, 320, fake_));
  for (const auto& prompt : prompts) run(prompt);
  EXPECT_EQ(engine->load().kv_blocks_prefix_cache, 80u);

  engine->Trim(40);
  ASSERT_TRUE(Eventually([&] { return engine->load().kv_bytes_returned > 0; }));
  EXPECT_LE(engine->load().kv_blocks_prefix_cache, 40u);
  EXPECT_GE(engine->load().kv_blocks_prefix_cache, 38u);
  EXPECT_EQ(run(prompts.back()), 319u) << "the last used stays";
  EXPECT_EQ(run(prompts.front()), 0u);
  ExpectIdle(*engine);
}

TEST_F(Trim, MemoryThatWasNotNeededGoesBackAndComesAgain) {
  Options options = PoolOf(1000);
  options.kv_floor_blocks = 10;
  options.kv_return_after = absl::Milliseconds(100);
  Recorder recorder;
  const auto engine = MakeEngine(fake_, options, &recorder);
  for (int round = 1; round <= 2; ++round) {
    const uint64_t before = engine->load().kv_bytes_returned;
    std::vector<SequenceSpec> specs = Specs(40);
    for (SequenceSpec& spec : specs) {
      spec.ref.key += 1000 * round;
      engine->Submit(spec);
    }
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
      EXPECT_EQ(recorder.Of(spec.ref).tokens, FakeReference(fake_, spec.prompt, spec.max_tokens));
    }
    ASSERT_TRUE(Eventually([&] {
      const Load load = engine->load();
      return load.kv_bytes_returned > before && load.kv_blocks_free >= 990;
    }));
  }
  ExpectIdle(*engine);
}

// 128 of these blocks fill a huge page. Streams lie in the last ones of the pool
// and are moved into the first, which they share; the others are given back.
TEST_F(Trim, LiveStreamsLeaveTheirHugePages) {
  fake_.delay_per_step = absl::Milliseconds(5);
  Recorder recorder;
  Options options = PoolOf(1000);
  options.chunk_tokens = 32;  // the long ones are at their prompts all the while
  const auto engine = MakeEngine(fake_, options, &recorder);
  std::vector<SequenceSpec> live;
  for (uint64_t key = 1; key <= 7; ++key) {
    SequenceSpec spec = MakeSpec(key, RandomPrompt(random_, key <= 3 ? 6000 : 200, fake_), 100);
    spec.prefix_cache = false;
    if (key > 3) live.push_back(spec);
    engine->Submit(std::move(spec));
    // The first blocks are theirs.
    if (key == 3) {
      ASSERT_TRUE(Eventually([&] { return engine->load().kv_blocks_requests >= 3 * 188u; }));
    }
  }
  for (const SequenceSpec& spec : live) ASSERT_TRUE(recorder.WaitForTokens(spec.ref, 1));
  for (uint64_t key = 1; key <= 3; ++key) engine->Cancel({1, key}, absl::CancelledError("room"));
  for (uint64_t key = 1; key <= 3; ++key) ASSERT_TRUE(recorder.WaitForEnd({1, key}));
  engine->Trim(100);
  ASSERT_TRUE(Eventually([&] { return engine->load().kv_bytes_returned > 0; }));
  // Of nobody else: they were there when their blocks were moved.
  EXPECT_GE(engine->load().blocks_moved, 4 * 6u);
  // 3 x 6,000 tokens needed more than 560 blocks.
  EXPECT_GE(engine->load().kv_bytes_returned, uint64_t{3} << 21);
  EXPECT_EQ(engine->load().kv_bytes_returned % (2 << 20), 0u);
  for (const SequenceSpec& spec : live) {
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder.Of(spec.ref).tokens, FakeReference(fake_, spec.prompt, spec.max_tokens));
  }
  ExpectIdle(*engine);
  const std::byte* first = engine->arena().Layer(kv::BlockId{128}, 0);
  const std::byte* last = engine->arena().Layer(kv::BlockId{511}, 0);
  EXPECT_TRUE(std::all_of(first, last, [](std::byte byte) { return byte == std::byte{0}; }))
      << "nothing lies there any more";
}

TEST_F(Trim, WithoutAFloorNothingGoesBack) {
  Options options = PoolOf(100);
  options.kv_return_after = absl::Milliseconds(10);
  Recorder recorder;
  const auto engine = MakeEngine(fake_, options, &recorder);
  const SequenceSpec spec = MakeSpec(1, RandomPrompt(random_, 320, fake_), 4);
  engine->Submit(spec);
  ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
  absl::SleepFor(absl::Milliseconds(600));  // an idle engine wakes twice a second
  EXPECT_EQ(engine->load().kv_bytes_returned, 0u);
  EXPECT_EQ(engine->load().kv_blocks_prefix_cache, 10u);
  ExpectIdle(*engine);
}

}  // namespace
}  // namespace baton::engine
