// SPDX-License-Identifier: Apache-2.0
// Sharing blocks saves work and changes no token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/time/clock.h"
#include "common/prefix/block_hash.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;
using Tokens = std::vector<TokenId>;

Options ChunkedPool(uint32_t blocks, uint32_t chunk) {
  Options options;
  options.kv_blocks = blocks;
  options.chunk_tokens = chunk;
  return options;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One engine that runs prompt and answer.
class PrefixTest : public ::testing::Test {
 protected:
  void Start(const Options& options) { engine_ = MakeEngine(fake_, options, &recorder_); }
  void TearDown() override {
    if (engine_ != nullptr) ExpectIdle(*engine_);
  }
  Tokens Random(size_t length) { return RandomPrompt(random_, length, fake_); }

  // Runs it alone and checks its tokens.
  Heard Run(const Tokens& prompt, uint32_t max_tokens = 4) {
    return Run(MakeSpec(++key_, prompt, max_tokens));
  }
  Heard Run(const SequenceSpec& spec) {
    engine_->Submit(spec);
    EXPECT_TRUE(recorder_.WaitForEnd(spec.ref));
    const Heard heard = recorder_.Of(spec.ref);
    if (spec.sampling.temperature == 0) {
      EXPECT_EQ(heard.tokens, FakeReference(fake_, spec.prompt, spec.max_tokens));
    }
    return heard;
  }

  FakeOptions fake_;
  std::mt19937 random_{11};
  Recorder recorder_;
  std::unique_ptr<Engine> engine_;
  uint64_t key_ = 0;
};

TEST_F(PrefixTest, SharedPrefixIsComputedOnce) {
  Start(PoolOf(64));
  const Tokens prefix = Random(500);
  EXPECT_EQ(Run(prefix + Random(48)).cached, 0u);
  EXPECT_EQ(engine_->load().prompt_tokens_computed, 548u);
  // 15 full blocks are shared; of the 16th, 20 tokens are copied.
  EXPECT_EQ(Run(prefix + Random(48)).cached, 500u);
  EXPECT_EQ(engine_->load().prompt_tokens_computed, 548u + 48u);
}

// A prompt of whole blocks that is all cached leaves one token to compute.
TEST_F(PrefixTest, RepeatedPromptOfAnyLengthComputesAtLeastItsLastToken) {
  Start(PoolOf(64));
  for (const uint32_t length : {1u, 31u, 32u, 33u, 64u, 65u, 96u}) {
    const Tokens prompt = Random(length);
    for (int round = 0; round < 3; ++round) {
      const Heard heard = Run(prompt);
      EXPECT_LT(heard.cached, length);
      EXPECT_GE(heard.cached + (round == 0 ? length : 32), length);
    }
    // Its last block is there for a longer prompt.
    EXPECT_GE(Run(prompt + Tokens(3, 5)).cached, length / 32 * 32);
  }
}

TEST_F(PrefixTest, NextRoundOfAConversationComputesItsNewTokensAndAtMostABlock) {
  Start(PoolOf(64));
  Tokens conversation = Random(150);
  for (int round = 0; round < 5; ++round) {
    const Heard heard = Run(conversation, 70);
    const Tokens news = Random(25);
    const uint64_t before = engine_->load().prompt_tokens_computed;
    const size_t length = conversation.size() + heard.tokens.size();
    conversation = conversation + heard.tokens + news;
    EXPECT_GE(Run(conversation, 1).cached + 32, length);
    EXPECT_LE(engine_->load().prompt_tokens_computed - before, news.size() + 32);
  }
}

TEST_F(PrefixTest, CopiedBlockIsNotSharedWithItsOriginal) {
  Start(PoolOf(64));
  const Tokens shared = Random(52), rest = Random(100);
  Run(shared + rest);
  EXPECT_EQ(Run(shared + Random(40)).cached, 52u);  // writes into its copy
  EXPECT_EQ(Run(shared + rest).cached, 128u);       // finds the original as it was
}

// At the same time, while both write.
TEST_F(PrefixTest, ConcurrentContinuationsOfOnePrefixDoNotMix) {
  Start(PoolOf(200));
  const Tokens prefix = Random(210);
  Run(prefix);
  std::vector<SequenceSpec> specs;
  for (int i = 0; i < 16; ++i) {
    specs.push_back(MakeSpec(++key_, prefix + Random(1 + random_() % 60), 50));
    engine_->Submit(specs.back());
  }
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder_.Of(spec.ref).tokens, FakeReference(fake_, spec.prompt, 50));
    EXPECT_GE(recorder_.Of(spec.ref).cached, 192u);
  }
}

TEST_F(PrefixTest, TenantsWithSaltsShareNothing) {
  Start(PoolOf(64));
  SequenceSpec spec = MakeSpec(++key_, Random(200), 3);
  spec.cache_salt = "org_1";
  EXPECT_EQ(Run(spec).cached, 0u);
  for (const std::string salt : {"", "org_12345", "org_2"}) {
    spec.ref.key = ++key_;
    spec.cache_salt = salt;
    EXPECT_EQ(Run(spec).cached, 0u) << salt;
  }
  spec.ref.key = ++key_;
  spec.cache_salt = "org_1";
  EXPECT_EQ(Run(spec).cached, 192u);
}

TEST_F(PrefixTest, RequestThatOptsOutTakesAndLeavesNothing) {
  Start(PoolOf(64));
  SequenceSpec spec = MakeSpec(++key_, Random(200), 3);
  spec.prefix_cache = false;
  Run(spec);
  EXPECT_EQ(engine_->load().kv_blocks_prefix_cache, 0u);
  Run(spec.prompt);
  spec.ref.key = ++key_;
  EXPECT_EQ(Run(spec).cached, 0u);
  EXPECT_EQ(engine_->load().prefix_lookups, 1u);
}

// Every token of its prompt is scored, so every one is computed.
TEST_F(PrefixTest, PromptThatIsScoredTakesNothingFromTheCache) {
  Start(PoolOf(64));
  SequenceSpec spec = MakeSpec(++key_, Random(200), 3);
  Run(spec);
  spec.ref.key = ++key_;
  spec.sampling.prompt_logprobs = 1;
  const Heard heard = Run(spec);
  EXPECT_EQ(heard.cached, 0u);
  EXPECT_EQ(heard.prompt_logprobs.size(), 199u);
}

TEST_F(PrefixTest, EngineWithoutACacheKeepsNoBlock) {
  Options options = PoolOf(64);
  options.prefix_cache = false;
  Start(options);
  const Tokens prompt = Random(200);
  Run(prompt);
  EXPECT_EQ(Run(prompt).cached, 0u);
  EXPECT_EQ(engine_->load().kv_blocks_free, 64u);
}

// Every token of the sequence was drawn from finite logits, or nothing of it
// is kept: NaN in a cached block would spread to all that share it.
TEST_F(PrefixTest, BlocksOfARequestWithNanAreNotKept) {
  fake_.nan_token = 999;
  fake_.vocabulary_size = 1000;
  Start(PoolOf(64));
  Tokens prompt(200, 4);
  prompt.back() = 999;
  const SequenceSpec spec = MakeSpec(++key_, prompt, 5);
  engine_->Submit(spec);
  ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
  EXPECT_EQ(recorder_.Of(spec.ref).end.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine_->load().kv_blocks_prefix_cache, 0u);
  EXPECT_EQ(Run(Tokens(100, 4)).cached, 0u);
}

TEST_F(PrefixTest, BlocksOfAFailedStepAreNotKept) {
  fake_.fail_token = 777;
  Start(PoolOf(64));
  Tokens prompt(100, 4);
  prompt[90] = 777;
  const SequenceSpec spec = MakeSpec(++key_, prompt, 5);
  engine_->Submit(spec);
  ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
  EXPECT_EQ(engine_->load().kv_blocks_prefix_cache, 0u);
}

TEST_F(PrefixTest, CancellationBetweenChunksLeavesOnlyWhatIsComplete) {
  fake_.delay_per_step = absl::Milliseconds(2);
  Start(ChunkedPool(64, 32));
  const Tokens prompt = Random(160);  // five chunks
  for (int delay = 0; delay < 14; ++delay) {
    const SequenceSpec spec = MakeSpec(++key_, prompt, 20);
    engine_->Submit(spec);
    absl::SleepFor(absl::Milliseconds(delay));
    engine_->Cancel(spec.ref, absl::CancelledError("the client left"));
    ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
    ExpectIdle(*engine_);
    Run(prompt);
  }
}

// An evicted block is found no more, and its memory serves others.
TEST_F(PrefixTest, EvictedPrefixIsComputedAnew) {
  Start(PoolOf(8));
  const Tokens a = Random(200), b = Random(200), c = Random(200);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Run(a).cached, 0u);
    EXPECT_EQ(Run(b).cached, 0u);
    EXPECT_EQ(Run(c).cached, 0u);
  }
  EXPECT_GT(engine_->load().prefix_evictions, 40u);
}

TEST_F(PrefixTest, DistinctPromptsPassThroughASmallPool) {
  Start(PoolOf(20));
  for (int i = 0; i < 200; ++i) Run(Random(33 + random_() % 300), 2);
  const Load load = engine_->load();
  EXPECT_GT(load.prefix_evictions, 0u);
  EXPECT_EQ(load.kv_blocks_free + load.kv_blocks_reclaimable, 20u);
}

TEST_F(PrefixTest, PopularPromptsAreFoundMostOfTheTime) {
  Start(PoolOf(40));
  std::vector<Tokens> prompts;
  for (int i = 0; i < 30; ++i) prompts.push_back(Random(64 + random_() % 64));
  std::vector<double> zipf(prompts.size());
  for (size_t i = 0; i < zipf.size(); ++i) zipf[i] = 1.0 / static_cast<double>(i + 1);
  std::discrete_distribution<size_t> choose(zipf.begin(), zipf.end());
  for (int i = 0; i < 500; ++i) Run(prompts[choose(random_)], 2);
  const Load load = engine_->load();
  EXPECT_GT(load.prefix_hit_tokens * 2, load.prefix_lookup_tokens);
}

// The only block that could be evicted is the one to copy from.
TEST_F(PrefixTest, RequestThatNeedsTheWholePoolIsAdmitted) {
  Start(PoolOf(8));
  const Tokens shared = Random(20);
  Run(shared + Random(12));
  EXPECT_EQ(Run(shared + Random(215), 20).cached, 0u);
}

TEST_F(PrefixTest, SeedsGiveEqualTokensWithAndWithoutAHit) {
  const Tokens prefix = Random(130);
  SequenceSpec spec = MakeSpec(0, prefix + Random(70), 40);
  spec.sampling.temperature = 0.9f;
  spec.sampling.seed = 5;
  spec.sampling.repetition_penalty = 1.3f;
  std::vector<Tokens> answers;
  for (const uint32_t chunk : {512u, 64u, 32u}) {
    Start(ChunkedPool(64, chunk));
    for (int round = 0; round < 2; ++round) {
      spec.ref.key = ++key_;
      answers.push_back(Run(spec).tokens);
      Run(prefix);
    }
  }
  for (const Tokens& answer : answers) EXPECT_EQ(answer, answers[0]);
}

TEST_F(PrefixTest, CountersEqualWhatRequestsWereTold) {
  Start(PoolOf(64));
  const Tokens prefix = Random(300);
  uint64_t cached = 0, prompts = 0;
  for (int i = 0; i < 10; ++i) {
    const Tokens prompt = prefix + Random(1 + random_() % 40);
    cached += Run(prompt).cached;
    prompts += prompt.size();
  }
  const Load load = engine_->load();
  EXPECT_EQ(load.prefix_hit_tokens, cached);
  EXPECT_EQ(load.prefix_lookup_tokens, prompts);
  EXPECT_EQ(load.prompt_tokens_computed, prompts - cached);
  EXPECT_EQ(load.prefix_lookups, 10u);
}

TEST_F(PrefixTest, JournalTellsWhichPrefixesAreCached) {
  prefix::Journal journal;
  Options options = PoolOf(8);
  options.prefix_journal = &journal;
  Start(options);
  const Tokens prompt = Random(100);
  Run(prompt, 1);
  auto told = journal.Since(0).added;
  std::sort(told.begin(), told.end());
  auto expected = prefix::DigestChain("", prompt);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(told, expected);
  Run(Random(250), 1);  // evicts it all
  for (const uint64_t digest : journal.Since(0).added) {
    EXPECT_THAT(expected, ::testing::Not(::testing::Contains(digest)));
  }
  ExpectIdle(*engine_);
  engine_.reset();
}

// A prefill and a decode engine.
class PrefixSplitTest : public ::testing::Test {
 protected:
  void Start(uint32_t prefill_blocks, uint32_t decode_blocks, uint32_t chunk = 512) {
    pair_ = std::make_unique<Pair>(fake_, ChunkedPool(prefill_blocks, chunk),
                                   ChunkedPool(decode_blocks, chunk));
  }
  void TearDown() override { pair_->ExpectIdle(); }
  Tokens Random(size_t length) { return RandomPrompt(random_, length, fake_); }

  SequenceRef Run(const Tokens& prompt, uint32_t max_tokens = 4) {
    const SequenceSpec spec = MakeSpec(++key_, prompt, max_tokens);
    pair_->Submit(spec);
    EXPECT_TRUE(pair_->WaitForEnd(spec.ref));
    EXPECT_EQ(pair_->Tokens(spec.ref), FakeReference(fake_, prompt, max_tokens));
    return spec.ref;
  }
  uint32_t CachedOnPrefill(SequenceRef ref) { return pair_->prefill_heard.Of(ref).cached; }
  uint32_t CachedOnDecode(SequenceRef ref) {
    return pair_->decode_heard.Of(ref).end.cached_prompt_tokens;
  }
  // Blocks that travelled.
  uint64_t Moved(SequenceRef ref) {
    return pair_->prefill_heard.Of(ref).end.handoff_bytes /
           pair_->prefill->arena().layout().BlockBytes();
  }

  FakeOptions fake_;
  std::mt19937 random_{12};
  std::unique_ptr<Pair> pair_;
  uint64_t key_ = 0;
};

TEST_F(PrefixSplitTest, OnlyBlocksThatTheDecodeWorkerLacksTravel) {
  Start(128, 128);
  const Tokens prefix = Random(1000);
  SequenceRef ref = Run(prefix + Random(48));
  EXPECT_EQ(CachedOnPrefill(ref), 0u);
  EXPECT_EQ(CachedOnDecode(ref), 0u);
  EXPECT_EQ(Moved(ref), 33u);
  for (int i = 0; i < 5; ++i) {
    ref = Run(prefix + Random(48));
    EXPECT_EQ(CachedOnPrefill(ref), 1000u);
    EXPECT_EQ(CachedOnDecode(ref), 992u);
    EXPECT_EQ(Moved(ref), 2u);
  }
  EXPECT_EQ(pair_->prefill->load().prompt_tokens_computed, 1048u + 5 * 48u);
}

// Where the whole prompt is there, nothing but the commit is left.
TEST_F(PrefixSplitTest, RepeatedPromptGivesTheSameAnswerAtEveryLength) {
  Start(64, 64);
  for (const uint32_t length : {1u, 31u, 32u, 33u, 64u, 65u, 320u}) {
    const Tokens prompt = Random(length);
    for (int round = 0; round < 3; ++round) {
      const SequenceRef ref = Run(prompt, 40);
      EXPECT_LT(CachedOnPrefill(ref), length);
      if (round > 0) {
        EXPECT_EQ(CachedOnDecode(ref), length / 32 * 32);
        EXPECT_EQ(Moved(ref), length % 32 == 0 ? 0 : 1);
      }
    }
  }
}

// Hits on one end alone, and on the other alone.
TEST_F(PrefixSplitTest, EndsHitIndependently) {
  Start(64, 64);
  const Tokens prompt = Random(200);
  SequenceSpec spec = MakeSpec(++key_, prompt, 3);
  pair_->decode->Submit(spec);  // local: the prefill worker knows nothing of it
  ASSERT_TRUE(pair_->decode_heard.WaitForEnd(spec.ref));
  SequenceRef ref = Run(prompt);
  EXPECT_EQ(CachedOnPrefill(ref), 0u);
  EXPECT_EQ(CachedOnDecode(ref), 192u);
  EXPECT_EQ(Moved(ref), 1u);
  const Tokens other = Random(200);
  Run(other, 1);  // ends with its first token: the decode worker gets nothing
  ref = Run(other);
  EXPECT_EQ(CachedOnPrefill(ref), 192u);
  EXPECT_EQ(CachedOnDecode(ref), 0u);
  EXPECT_EQ(Moved(ref), 7u);
}

// After a turn the decode worker has prompt and answer.
TEST_F(PrefixSplitTest, ConversationStaysOnTheDecodeWorker) {
  Start(64, 64);
  Tokens conversation = Random(150);
  for (int round = 0; round < 5; ++round) {
    const SequenceRef ref = Run(conversation, 70);
    const size_t length = conversation.size() + 70;
    conversation = conversation + pair_->Tokens(ref) + Random(25);
    SequenceSpec next = MakeSpec(++key_, conversation, 1);
    pair_->decode->Submit(next);
    ASSERT_TRUE(pair_->decode_heard.WaitForEnd(next.ref));
    EXPECT_GE(pair_->decode_heard.Of(next.ref).cached + 32, length);
  }
}

// Blocks on their way are pinned, however short memory is; evicting them would
// send somebody else's KV.
TEST_F(PrefixSplitTest, BlocksBeingSentAreNotEvicted) {
  Start(12, 64);
  pair_->sender.SetFrozen(true);
  const SequenceSpec spec = MakeSpec(++key_, Random(200), 5);
  pair_->Submit(spec);
  ASSERT_TRUE(pair_->prefill_heard.WaitForTokens(spec.ref, 1));
  std::vector<SequenceSpec> others;
  for (int i = 0; i < 6; ++i) {
    others.push_back(MakeSpec(++key_, Random(150), 5));
    pair_->Submit(others.back());
  }
  ASSERT_TRUE(Eventually([&] { return pair_->prefill->load().waiting_sequences == 5; }) ||
              pair_->prefill->load().waiting_sequences > 0);
  pair_->sender.SetFrozen(false);
  for (const SequenceSpec& each : others) {
    ASSERT_TRUE(pair_->WaitForEnd(each.ref));
    EXPECT_EQ(pair_->Tokens(each.ref), FakeReference(fake_, each.prompt, 5));
  }
  ASSERT_TRUE(pair_->WaitForEnd(spec.ref));
  EXPECT_EQ(pair_->Tokens(spec.ref), FakeReference(fake_, spec.prompt, 5));
}

// What a broken-off hand-off has written is not taken for a prefix.
TEST_F(PrefixSplitTest, HalfLandedBlocksAreNotKept) {
  Start(64, 64);
  pair_->sender.FailCommits(absl::UnavailableError("the link broke"));
  const SequenceSpec spec = MakeSpec(++key_, Random(200), 5);
  pair_->Submit(spec);
  ASSERT_TRUE(pair_->WaitForEnd(spec.ref));
  EXPECT_EQ(pair_->decode->load().kv_blocks_prefix_cache, 0u);
  pair_->sender.FailCommits(absl::OkStatus());
  const SequenceRef ref = Run(spec.prompt);
  EXPECT_EQ(CachedOnDecode(ref), 0u);
  EXPECT_EQ(CachedOnPrefill(ref), 192u) << "the prefill worker's are whole";
}

TEST_F(PrefixSplitTest, CancelledReservationLeavesSharedBlocksAlone) {
  Start(64, 64);
  const Tokens prefix = Random(192);
  Run(prefix + Random(20));
  for (int i = 0; i < 20; ++i) {
    pair_->sender.SetFrozen(true);
    const SequenceSpec spec = MakeSpec(++key_, prefix + Random(40), 5);
    pair_->Submit(spec);
    ASSERT_TRUE(pair_->prefill_heard.WaitForTokens(spec.ref, 1));
    pair_->Cancel(spec.ref);
    pair_->sender.SetFrozen(false);
    ASSERT_TRUE(pair_->WaitForEnd(spec.ref));
    EXPECT_EQ(CachedOnDecode(Run(prefix + Random(30))), 192u);
  }
}

// Random requests over a few prefixes, in pools so small that blocks are
// evicted all the time: tokens equal those of a lone run, on every path.
TEST_F(PrefixSplitTest, SharingAndEvictionChangeNoToken) {
  Start(30, 40, 64);
  std::vector<Tokens> prefixes;
  for (int i = 0; i < 4; ++i) prefixes.push_back(Random(40 + random_() % 150));
  std::vector<SequenceSpec> specs;
  for (int i = 0; i < 120; ++i) {
    const Tokens& prefix = prefixes[random_() % prefixes.size()];
    const Tokens some(prefix.begin(), prefix.begin() + 1 + random_() % prefix.size());
    SequenceSpec spec = MakeSpec(++key_, some + Random(1 + random_() % 50),
                                 1 + static_cast<uint32_t>(random_() % 40));
    spec.cache_salt = random_() % 4 == 0 ? "tenant" : "";
    spec.prefix_cache = random_() % 8 != 0;
    specs.push_back(spec);
    if (i % 3 == 0) {
      spec.role = Role::kWhole;
      pair_->decode->Submit(spec);
    } else {
      pair_->Submit(spec);
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const SequenceSpec& spec = specs[i];
    const bool local = i % 3 == 0;
    ASSERT_TRUE(local ? pair_->decode_heard.WaitForEnd(spec.ref) : pair_->WaitForEnd(spec.ref));
    const Tokens tokens = local ? pair_->decode_heard.Of(spec.ref).tokens : pair_->Tokens(spec.ref);
    EXPECT_EQ(tokens, FakeReference(fake_, spec.prompt, spec.max_tokens)) << i;
  }
  for (Engine* engine : {pair_->prefill.get(), pair_->decode.get()}) {
    EXPECT_GT(engine->load().prefix_hit_tokens, 0u);
    EXPECT_GT(engine->load().prefix_evictions, 0u);
  }
}

}  // namespace
}  // namespace baton::engine
