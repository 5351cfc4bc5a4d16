// SPDX-License-Identifier: Apache-2.0
// Growing on demand, and being put aside when blocks run out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;

Options Uncached(uint32_t blocks, uint32_t swap_blocks = 0) {
  Options options;
  options.kv_blocks = blocks;
  options.swap_bytes = swap_blocks * kFakeBlock;
  options.prefix_cache = false;  // what is dropped is gone
  return options;
}

std::vector<SequenceSpec> Specs(uint32_t count, size_t prompt, uint32_t output,
                                const FakeOptions& fake) {
  std::mt19937 random(5);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= count; ++key) {
    specs.push_back(MakeSpec(key, RandomPrompt(random, prompt, fake), output));
  }
  return specs;
}

// Each token once and in order, and those of the sequence alone.
void ExpectWhole(const Heard& heard, const SequenceSpec& spec, const FakeOptions& fake) {
  std::vector<uint32_t> indices(spec.max_tokens);
  std::iota(indices.begin(), indices.end(), 0);
  EXPECT_EQ(heard.indices, indices) << spec.ref.key;
  EXPECT_EQ(heard.tokens, FakeReference(fake, spec.prompt, spec.max_tokens)) << spec.ref.key;
  EXPECT_EQ(heard.ends, 1u);
  EXPECT_TRUE(heard.end.status.ok()) << heard.end.status;
}

// A pool of 1.2 sequences, prompt a quarter and output three quarters of each.
TEST(Preemption, SequencesThatOutgrowThePoolTogetherAllFinish) {
  const FakeOptions fake;
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine(fake, Uncached(10), &recorder, nullptr, &gate);
  const auto specs = Specs(4, 64, 193, fake);  // 8 blocks each
  SubmitTogether(*engine, gate, specs);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    ExpectWhole(recorder.Of(spec.ref), spec, fake);
  }
  const Load load = engine->load();
  EXPECT_GE(load.preemptions, 2u);
  EXPECT_EQ(load.swaps, 0u);
  EXPECT_EQ(load.prompt_tokens_computed, 4u * 64);  // others are counted apart
  EXPECT_GT(load.recomputed_tokens, 0u);
  ExpectIdle(*engine);
}

TEST(Preemption, ASequenceHoldsWhatItHasComputedAndABlockToCome) {
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine({}, Uncached(10), &recorder, nullptr, &gate);
  gate.Close();
  engine->Submit(MakeSpec(1, std::vector<TokenId>(32, 1), 200));
  ASSERT_TRUE(gate.WaitForStep());
  EXPECT_EQ(engine->load().kv_blocks_requests, 2u);
  gate.Open();
  ASSERT_TRUE(recorder.WaitForEnd({1, 1}));
  ExpectIdle(*engine);
}

// Long after its prompt's length a sequence is computed again: it is not taken
// for a prompt, says no token twice, and draws on where it stood.
TEST(Preemption, EachIsPutAsideOftenAndNoTokenChanges) {
  const FakeOptions fake;
  for (const bool seeded : {false, true}) {
    auto specs = Specs(5, 3, 300, fake);
    for (SequenceSpec& spec : specs) {
      if (seeded) spec.sampling = {.temperature = 1, .seed = spec.ref.key};
    }
    Recorder alone, together;
    const auto roomy = MakeEngine(fake, Uncached(100), &alone);
    Gate gate;
    const auto tight = MakeEngine(fake, Uncached(12), &together, nullptr, &gate);
    SubmitTogether(*tight, gate, specs);
    uint32_t often = 0;
    for (const SequenceSpec& spec : specs) {
      roomy->Submit(spec);
      ASSERT_TRUE(alone.WaitForEnd(spec.ref));
      ASSERT_TRUE(together.WaitForEnd(spec.ref));
      const Heard heard = together.Of(spec.ref);
      EXPECT_EQ(heard.tokens, alone.Of(spec.ref).tokens) << spec.ref.key;
      EXPECT_EQ(heard.tokens.size(), 300u);
      EXPECT_TRUE(std::is_sorted(heard.indices.begin(), heard.indices.end()));
      often += heard.end.preemptions.count >= 2 ? 1 : 0;
    }
    EXPECT_GE(often, 1u);
    EXPECT_EQ(together.Of(specs[0].ref).end.preemptions.count, 0u) << "the first was put aside";
    ExpectIdle(*tight);
    ExpectIdle(*roomy);
  }
}

// Computing is dear: KV is copied out and in, and nothing is computed again.
TEST(Preemption, KvIsSwappedWhereThatIsCheaper) {
  const FakeOptions fake{.delay_per_token = absl::Microseconds(20)};
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine(fake, Uncached(10, 40), &recorder, nullptr, &gate);
  const auto specs = Specs(4, 64, 193, fake);
  SubmitTogether(*engine, gate, specs);
  uint64_t bytes = 0;
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    ExpectWhole(recorder.Of(spec.ref), spec, fake);
    const Preemptions& preemptions = recorder.Of(spec.ref).end.preemptions;
    EXPECT_EQ(preemptions.recomputed_tokens, 0u);
    EXPECT_EQ(preemptions.swapped_bytes % kFakeBlock, 0u);
    if (preemptions.count > 0) {
      EXPECT_GT(preemptions.time, absl::ZeroDuration());
    }
    bytes += preemptions.swapped_bytes;
  }
  const Load load = engine->load();
  EXPECT_GE(load.swaps, 2u);
  EXPECT_EQ(load.swaps, load.preemptions);
  EXPECT_EQ(load.swapped_bytes, bytes);
  EXPECT_EQ(load.swap_bytes_used, 0u);
  EXPECT_EQ(load.swap_bytes_total, 40 * kFakeBlock);
  ExpectIdle(*engine);
}

TEST(Preemption, WhatTheSwapAreaCannotTakeIsComputedAgain) {
  const FakeOptions fake{.delay_per_token = absl::Microseconds(20)};
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine(fake, Uncached(12, 5), &recorder, nullptr, &gate);
  const auto specs = Specs(6, 64, 193, fake);
  SubmitTogether(*engine, gate, specs);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    ExpectWhole(recorder.Of(spec.ref), spec, fake);
  }
  EXPECT_GT(engine->load().preemptions, engine->load().swaps);
  ExpectIdle(*engine);
}

TEST(Preemption, LowestPriorityIsPutAsideFirstWheneverItCame) {
  const FakeOptions fake;
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine(fake, Uncached(10), &recorder, nullptr, &gate);
  auto specs = Specs(3, 64, 100, fake);
  specs[0].priority = -1;
  specs[2].priority = 1;
  SubmitTogether(*engine, gate, specs);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    ExpectWhole(recorder.Of(spec.ref), spec, fake);
  }
  EXPECT_GE(recorder.Of(specs[0].ref).end.preemptions.count, 1u);
  EXPECT_EQ(recorder.Of(specs[2].ref).end.preemptions.count, 0u);
  ExpectIdle(*engine);
}

// Newcomers do not overtake one that was put aside, or it would starve.
TEST(Preemption, WhoWasPutAsideGoesOnUnderAStreamOfNewcomers) {
  const FakeOptions fake{.delay_per_step = absl::Microseconds(200)};
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine(fake, Uncached(12), &recorder, nullptr, &gate);
  const auto specs = Specs(2, 64, 250, fake);  // 10 blocks each
  SubmitTogether(*engine, gate, specs);
  uint64_t key = 100;
  const absl::Time give_up = absl::Now() + absl::Seconds(15);
  while (recorder.Of(specs[1].ref).ends == 0 && absl::Now() < give_up) {
    if (engine->load().waiting_sequences < 5) engine->Submit(MakeSpec(++key, {7, 8, 9}, 20));
    absl::SleepFor(absl::Microseconds(300));
  }
  ExpectWhole(recorder.Of(specs[1].ref), specs[1], fake);
  EXPECT_GE(recorder.Of(specs[1].ref).end.preemptions.count, 1u);
  engine->CancelOwner(1, absl::CancelledError("end of the test"));
  ExpectIdle(*engine);
}

TEST(Preemption, CancelledWhilePutAsideLeavesNothingInTheSwapArea) {
  const FakeOptions fake{.delay_per_step = absl::Microseconds(300)};
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine(fake, Uncached(10, 40), &recorder, nullptr, &gate);
  const auto specs = Specs(4, 64, 193, fake);
  SubmitTogether(*engine, gate, specs);
  ASSERT_TRUE(Eventually([&] { return engine->load().swap_bytes_used > 0; }));
  engine->CancelOwner(1, absl::CancelledError("gone"));
  for (const SequenceSpec& spec : specs) ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
  EXPECT_EQ(engine->load().swap_bytes_used, 0u);
  ExpectIdle(*engine);
}

// KV that landed from a prefill worker is put aside like any other.
TEST(Preemption, HandedOverSequencesGrowAndAreTakenUpAgain) {
  const FakeOptions fake;
  for (const uint32_t swap : {0u, 60u}) {
    Pair pair(fake, Uncached(60), Uncached(14, swap));
    const auto specs = Specs(6, 70, 200, fake);  // 9 blocks each
    for (const SequenceSpec& spec : specs) pair.Submit(spec);
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      EXPECT_EQ(pair.Tokens(spec.ref), FakeReference(fake, spec.prompt, spec.max_tokens))
          << spec.ref.key;
    }
    EXPECT_GE(pair.decode->load().preemptions, 1u);
    EXPECT_EQ(pair.prefill->load().preemptions, 0u);
    pair.ExpectIdle();
  }
}

// With a prefix cache less is computed again: what was dropped may be there yet.
TEST(Preemption, PrefixesAreSharedAndDroppedAndNoTokenChanges) {
  const FakeOptions fake;
  Recorder recorder;
  Gate gate;
  Options options = Uncached(16);
  options.prefix_cache = true;
  const auto engine = MakeEngine(fake, options, &recorder, nullptr, &gate);
  auto specs = Specs(6, 100, 150, fake);
  for (SequenceSpec& spec : specs) {
    std::copy_n(specs[0].prompt.begin(), 70, spec.prompt.begin());  // two blocks and a bit
  }
  SubmitTogether(*engine, gate, specs);
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    ExpectWhole(recorder.Of(spec.ref), spec, fake);
  }
  EXPECT_GE(engine->load().preemptions, 1u);
  ExpectIdle(*engine);
}

// Such a pair promises no bits for KV that the decode worker would compute.
class ConvertedKv : public ::testing::Test {
 protected:
  // Decodes `count` sequences whose (fake) KV landed converted.
  void Start(uint32_t count, const Options& options) {
    engine_ = MakeEngine(fake_, options, &recorder_);
    for (uint64_t key = 1; key <= count; ++key) {
      SequenceSpec spec = MakeSpec(key, std::vector<TokenId>(60, 1), 150, Role::kDecode);
      spec.swap_only = true;
      engine_->Submit(spec);
      engine_->Reserve(
          spec.ref, 60, kv::KvOrigin::kOwn, [this, ref = spec.ref](const auto& blocks) {
            ASSERT_TRUE(blocks.ok()) << blocks.status();
            engine_->Activate(ref, {.first_tokens = {5}, .drawn = 1},
                              [](const absl::Status& status) { EXPECT_TRUE(status.ok()); });
          });
    }
  }

  FakeOptions fake_;
  Recorder recorder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(ConvertedKv, IsOnlySwapped) {
  Start(4, Uncached(10, 40));
  for (uint64_t key = 1; key <= 4; ++key) ASSERT_TRUE(recorder_.WaitForEnd({1, key}));
  EXPECT_GE(engine_->load().swaps, 1u);
  EXPECT_EQ(engine_->load().recomputed_tokens, 0u);
  ExpectIdle(*engine_);
}

TEST_F(ConvertedKv, WithoutSwapAreaTheLastMakesRoomAndNothingFreezes) {
  Start(3, Uncached(10));
  uint32_t failed = 0;
  for (uint64_t key = 1; key <= 3; ++key) {
    ASSERT_TRUE(recorder_.WaitForEnd({1, key}));
    const absl::Status status = recorder_.Of({1, key}).end.status;
    if (status.ok()) continue;
    ++failed;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("--kv-swap"));
  }
  EXPECT_TRUE(recorder_.Of({1, 1}).end.status.ok()) << "the first made room";
  EXPECT_LE(failed, 2u);
  ExpectIdle(*engine_);
}

}  // namespace
}  // namespace baton::engine
