// SPDX-License-Identifier: Apache-2.0
// Sequences with a sliding window: a fixed set of blocks, and the tokens of the
// masked reference whatever happens to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;
using ::testing::HasSubstr;

constexpr kv::Window kWindow{.tokens = 64, .sinks = 32};
constexpr kv::Window kStrided{.tokens = 32, .sinks = 32, .stride = 128};
constexpr kv::Window kKeeping{.tokens = 64, .keep = {{{32, 96}, {160, 192}}}};

Options SmallChunks(uint32_t blocks, uint32_t swap_blocks = 0) {
  Options options;
  options.kv_blocks = blocks;
  options.swap_bytes = swap_blocks * kFakeBlock;
  options.chunk_tokens = 32;
  return options;
}

SequenceSpec Windowed(uint64_t key, std::vector<TokenId> prompt, uint32_t max_tokens,
                      const kv::Window& window = kWindow) {
  SequenceSpec spec = MakeSpec(key, std::move(prompt), max_tokens);
  spec.window = window;
  return spec;
}

std::vector<TokenId> Masked(const SequenceSpec& spec) {
  return FakeReference({}, spec.prompt, spec.max_tokens, spec.window);
}

TEST(WindowedSequence, GoesOnForEverInTheBlocksOfItsWindow) {
  std::mt19937 random(1);
  Recorder recorder;
  // The sink's, two of the window, and the one that is written.
  const auto engine = MakeEngine({}, SmallChunks(4), &recorder);
  const SequenceSpec spec = Windowed(1, RandomPrompt(random, 50, {}), 1200);
  engine->Submit(spec);
  ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
  EXPECT_TRUE(recorder.Of(spec.ref).end.status.ok()) << recorder.Of(spec.ref).end.status;
  EXPECT_EQ(recorder.Of(spec.ref).tokens, Masked(spec));
  EXPECT_NE(Masked(spec), FakeReference({}, spec.prompt, spec.max_tokens)) << "no window at all";
  ExpectIdle(*engine);
}

// A block of each stride stays, the others are given back: what the formula says is
// enough, one block less is refused.
TEST(WindowedSequence, StrideAndRangesKeepTheirBlocksAndNoOthers) {
  for (const kv::Window& window : {kStrided, kKeeping}) {
    std::mt19937 random(7);
    Recorder recorder;
    constexpr uint32_t kPrompt = 50, kOutput = 1200;
    const uint64_t blocks = kv::MostBlocks(window, kPrompt + 1, kPrompt + kOutput - 1);
    EXPECT_LT(blocks, 16u) << "of 40";
    const auto engine = MakeEngine({}, SmallChunks(static_cast<uint32_t>(blocks)), &recorder);
    const SequenceSpec spec = Windowed(1, RandomPrompt(random, kPrompt, {}), kOutput, window);
    engine->Submit(spec);
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    EXPECT_TRUE(recorder.Of(spec.ref).end.status.ok()) << recorder.Of(spec.ref).end.status;
    EXPECT_EQ(recorder.Of(spec.ref).tokens, Masked(spec));
    kv::Window plain = window;
    plain.stride = 0;
    plain.keep = {};
    EXPECT_NE(Masked(spec), FakeReference({}, spec.prompt, kOutput, plain));
    ExpectIdle(*engine);
    const auto tight = MakeEngine({}, SmallChunks(static_cast<uint32_t>(blocks - 1)), &recorder);
    recorder.Forget();
    tight->Submit(spec);
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    EXPECT_TRUE(absl::IsResourceExhausted(recorder.Of(spec.ref).end.status));
  }
}

// While it is computed a prompt gives back what no position to come sees.
TEST(WindowedSequence, LongPromptShrinksToItsWindow) {
  std::mt19937 random(2);
  Recorder recorder;
  Gate gate;
  const auto engine = MakeEngine({}, SmallChunks(20), &recorder, nullptr, &gate);
  const SequenceSpec spec = Windowed(1, RandomPrompt(random, 600, {}), 40);
  engine->Submit(spec);
  ASSERT_TRUE(recorder.WaitForTokens(spec.ref, 8));
  EXPECT_LE(engine->load().kv_blocks_requests, 5u);
  ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
  EXPECT_EQ(recorder.Of(spec.ref).tokens, Masked(spec));
  ExpectIdle(*engine);
}

// Some with windows of their own and some without, in a pool that holds few of them:
// swapped, computed again where that is possible, and always what each gives alone.
TEST(WindowedSequence, BeingPutAsideChangesNoToken) {
  constexpr kv::Window kWindows[] = {{}, {32, 0}, {64, 32}, {96, 64}, kStrided, kKeeping};
  for (const uint32_t swap : {0u, 6u, 100u}) {
    std::mt19937 random(3);
    Recorder recorder;
    Gate gate;
    const auto engine = MakeEngine({}, SmallChunks(14, swap), &recorder, nullptr, &gate);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 16; ++key) {
      specs.push_back(Windowed(key, RandomPrompt(random, 1 + random() % 200, {}),
                               1 + random() % 200, kWindows[key % 6]));
    }
    SubmitTogether(*engine, gate, specs);
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
      EXPECT_EQ(recorder.Of(spec.ref).tokens, Masked(spec)) << spec.ref.key << " swap " << swap;
    }
    EXPECT_GT(engine->load().preemptions, 0u);
    EXPECT_EQ(engine->load().swaps > 0, swap > 0);
    ExpectIdle(*engine);
  }
}

// What has rolled on beyond the pool cannot be computed again: it waits in the
// swap area, and others give way when there is none.
TEST(WindowedSequence, BeyondThePoolItIsSwappedOrKept) {
  for (const uint32_t swap : {0u, 100u}) {
    std::mt19937 random(4);
    Recorder recorder;
    const auto engine = MakeEngine({}, SmallChunks(12, swap), &recorder);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 5; ++key) {
      const bool windowed = key % 2 == 0;
      specs.push_back(Windowed(key, RandomPrompt(random, 20, {}), windowed ? 600 : 300,
                               windowed ? kWindow : kv::Window{}));
      engine->Submit(specs.back());
    }
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
      const Heard heard = recorder.Of(spec.ref);
      EXPECT_TRUE(heard.end.status.ok()) << heard.end.status;
      EXPECT_EQ(heard.tokens, Masked(spec)) << spec.ref.key << " swap " << swap;
    }
    EXPECT_GT(engine->load().preemptions, 0u);
    ExpectIdle(*engine);
  }
}

TEST(WindowedSequence, HandOffCarriesIt) {
  constexpr kv::Window kWindows[] = {{}, kWindow, kStrided, kKeeping};
  std::mt19937 random(5);
  Options small = SmallChunks(30, 40), large = SmallChunks(60);
  Pair pair({}, large, small);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 12; ++key) {
    SequenceSpec spec = Windowed(key, RandomPrompt(random, 1 + random() % 400, {}),
                                 2 + random() % 300, kWindows[key % 4]);
    spec.handoff_key = "h";
    specs.push_back(spec);
    pair.Submit(spec);
  }
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    EXPECT_EQ(pair.Tokens(spec.ref), Masked(spec)) << spec.ref.key;
  }
  pair.ExpectIdle();
}

// Nothing of a prompt moves, or gets a block on the other end, that no token behind
// it sees; and that end needs no room for it.
TEST(WindowedSequence, HandOffMovesWhatIsInSightAlone) {
  for (const kv::Window& window : {kWindow, kStrided, kKeeping}) {
    for (const uint32_t length : {600u, 608u, 33u}) {
      std::mt19937 random(8);
      const auto blocks = static_cast<uint32_t>(kv::MostBlocks(window, 0, length + 40 - 1));
      Pair pair({}, SmallChunks(40), SmallChunks(blocks));
      SequenceSpec spec = Windowed(1, RandomPrompt(random, length, {}), 40, window);
      spec.handoff_key = "h";
      pair.Submit(spec);
      ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      EXPECT_EQ(pair.Tokens(spec.ref), Masked(spec)) << length;
      const uint32_t seen = window.SeenBelow(length, kv::BlocksForTokens(length));
      EXPECT_EQ(pair.sender.calls().blocks, seen);
      EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.handoff_bytes, seen * kFakeBlock);
      EXPECT_EQ(pair.prefill->load().handoff_bytes, seen * kFakeBlock);
      EXPECT_LT(seen, 10u) << "of up to 19";
      pair.ExpectIdle();
    }
  }
}

// Choices share what came over, and a pool that is too small puts sequences aside.
TEST(WindowedSequence, WhatCameOverIsForkedAndPutAside) {
  for (const uint32_t swap : {0u, 100u}) {
    std::mt19937 random(9);
    Pair pair({}, SmallChunks(100), SmallChunks(24, swap));
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 10; ++key) {
      SequenceSpec spec = Windowed(key, RandomPrompt(random, 200 + random() % 100, {}), 200,
                                   key % 3 == 0   ? kStrided
                                   : key % 3 == 1 ? kWindow
                                                  : kv::Window{});
      spec.handoff_key = "h";
      if (key % 4 == 0) spec.choices = 2;
      specs.push_back(spec);
      pair.Submit(spec);
    }
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(pair.WaitForEnd(spec.ref));
      EXPECT_TRUE(pair.decode_heard.Of(spec.ref).end.status.ok())
          << pair.decode_heard.Of(spec.ref).end.status;
      EXPECT_EQ(pair.Tokens(spec.ref), Masked(spec)) << spec.ref.key << " swap " << swap;
    }
    EXPECT_GT(pair.decode->load().preemptions, 0u);
    EXPECT_EQ(pair.decode->load().swaps > 0, swap > 0);
    pair.ExpectIdle();
  }
}

// KV behind a window is another than that of sequences that see all.
TEST(WindowedSequence, SharesNoPrefixes) {
  std::mt19937 random(6);
  Recorder recorder;
  const auto engine = MakeEngine({}, SmallChunks(100), &recorder);
  const std::vector<TokenId> prompt = RandomPrompt(random, 400, {});
  const kv::Window windows[] = {kWindow, {}, kWindow, {128, 0}, kStrided, kStrided};
  for (uint64_t key = 0; key < 6; ++key) {
    const SequenceSpec spec = Windowed(key + 1, prompt, 60, windows[key]);
    engine->Submit(spec);
    ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder.Of(spec.ref).tokens, Masked(spec)) << key;
    EXPECT_EQ(recorder.Of(spec.ref).cached, 0u) << key;
  }
  ExpectIdle(*engine);
}

TEST(WindowedSequence, IsRefusedWhereItIsNotAllowed) {
  const auto refusal = [](const FakeOptions& model, const Options& options, kv::Window window) {
    Recorder recorder;
    const auto engine = MakeEngine(model, options, &recorder);
    engine->Submit(Windowed(1, {5, 6}, 100, window));
    EXPECT_TRUE(recorder.WaitForEnd({1, 1}));
    ExpectIdle(*engine);
    return recorder.Of({1, 1}).end.status;
  };
  FakeOptions model;
  model.windows = false;
  Options options = SmallChunks(10);
  absl::Status status = refusal(model, options, kWindow);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("window is 64; this model"));
  EXPECT_TRUE(refusal(model, options, {}).ok());
  EXPECT_THAT(std::string(refusal({}, options, {.tokens = 65}).message()), HasSubstr("65"));
  EXPECT_THAT(std::string(refusal({}, options, {.tokens = 64, .stride = 32}).message()),
              HasSubstr("stride is 32"));
  options.windows = false;
  EXPECT_THAT(std::string(refusal({}, options, kWindow).message()), HasSubstr("this worker"));
  EXPECT_TRUE(absl::IsResourceExhausted(refusal({}, SmallChunks(3), kWindow)));
}

}  // namespace
}  // namespace baton::engine
