// SPDX-License-Identifier: Apache-2.0
// Sequences with a window: in a fixed set of blocks, at absolute positions, they
// give what full KV gives with everything else masked.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/common/model/masked_reference.h"
#include "tests/common/model/windowed_sequence.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

// Every logit of a forced text, in chunks that end anywhere, against float64.
TEST(Window, ExactLogitsAreThoseOfTheMaskedReference) {
  const std::string model = testing::SharedData("models/stories260k/hf");
  BATON_NEED_DATA(model);
  const auto checkpoint = checkpoint::OpenCheckpoint(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto keep = [](uint32_t begin, uint32_t end) {
    return std::array<kv::TokenRange, kv::Window::kMostKeep>{{{begin, end}}};
  };
  for (const kv::Window& window :
       {kv::Window{64, 32}, kv::Window{32, 0}, kv::Window{288, 64}, kv::Window{64, 32, 96},
        kv::Window{32, 0, 64}, kv::Window{32, 0, 256}, kv::Window{32, 0, 0, keep(96, 160)},
        kv::Window{64, 32, 128, keep(64, 128)}}) {
    ModelRunner runner(model, LongContext("auto", Precision::kExact, kv::KvType::kF32), 32);
    ASSERT_TRUE(runner.ok());
    const auto tokens = RandomTokens(420, runner.vocabulary(), 1);
    Sight sight{.window = window.tokens, .sinks = window.sinks, .stride = window.stride};
    if (window.keep[0].end > 0) sight.keep = {{window.keep[0].begin, window.keep[0].end}};
    MaskedReference reference(**checkpoint, sight);
    WindowedSequence sequence(runner, window, 70, 420);
    double worst = 0;
    for (size_t at = 0; at < tokens.size(); at += 70) {
      const auto logits = sequence.Feed(std::span(tokens).subspan(at, 70));
      for (size_t i = 0; i < 70; ++i) {
        const std::vector<double> expected = reference.Next(tokens[at + i]);
        for (size_t v = 0; v < expected.size(); ++v) {
          worst = std::max(worst, std::abs(logits[i * expected.size() + v] - expected[v]));
        }
      }
    }
    EXPECT_LT(worst, 2e-3) << window.tokens << " + " << window.sinks << " / " << window.stride;
  }
}

// The mask matters: without it the logits are others.
TEST(Window, LogitsDifferFromThoseOfTheWholeContext) {
  ModelRunner runner("embedded", LongContext("auto", Precision::kExact, kv::KvType::kF32), 64);
  ASSERT_TRUE(runner.ok());
  const auto tokens = RandomTokens(300, runner.vocabulary(), 2);
  TestSequence whole = runner.NewSequence(300);
  const auto all = runner.Feed(whole, tokens, 300, LogitRows::kAll);
  WindowedSequence sequence(runner, {64, 32}, 300, 300);
  const auto windowed = sequence.Feed(tokens);
  const size_t width = runner.vocabulary();
  // Up to the position that first leaves a block out, bit for bit the same.
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + 128 * width, windowed.begin()));
  EXPECT_NE(std::vector(all.end() - width, all.end()),
            std::vector(windowed.end() - width, windowed.end()));
}

struct Case {
  std::string isa;
  Precision precision;
  kv::KvType type;
};

void ExpectEqualBits(const Case& c, const kv::Window& window) {
  std::vector<float> expected;
  for (const uint32_t threads : {1u, 2u}) {
    ModelRunner runner("embedded", LongContext(c.isa, c.precision, c.type, threads), 96);
    ASSERT_TRUE(runner.ok());
    const auto tokens = RandomTokens(400, runner.vocabulary(), 3);
    for (const uint32_t chunk : {400u, 100u, 33u, 1u}) {
      if (chunk == 1 && threads > 1) continue;
      WindowedSequence sequence(runner, window, chunk, 400);
      std::vector<float> logits;
      for (size_t at = 0; at < tokens.size(); at += chunk) {
        const auto part = sequence.Feed(
            std::span(tokens).subspan(at, std::min<size_t>(chunk, tokens.size() - at)));
        logits.insert(logits.end(), part.begin(), part.end());
      }
      runner.Reset();
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << c.isa << ", chunk " << chunk << ", threads " << threads
                                  << ", stride " << window.stride;
    }
  }
}

// The bits depend on the position alone: not on chunks, threads, or whether
// blocks are reused.
TEST(Window, BitsAreTheSameInEveryChunkThreadCountAndPool) {
  for (const std::string& isa : AvailableIsas()) {
    if (isa == "ref") continue;  // the same code above the kernels
    for (const Case& c : {Case{isa, Precision::kExact, kv::KvType::kF32},
                          Case{isa, Precision::kFast, kv::KvType::kBf16},
                          Case{isa, Precision::kFast, kv::KvType::kInt8}}) {
      ExpectEqualBits(c, {96, 32});
      ExpectEqualBits(c, {32, 0, 96, {{{128, 192}}}});
    }
  }
}

// A stride that keeps every second block, and ranges that keep the others: all is
// seen, bit for bit as without a window.
TEST(Window, BlocksThatAreKeptAreSeenAsWithoutAWindow) {
  ModelRunner runner("embedded", LongContext("auto", Precision::kFast, kv::KvType::kBf16), 64);
  ASSERT_TRUE(runner.ok());
  const auto tokens = RandomTokens(300, runner.vocabulary(), 4);
  TestSequence whole = runner.NewSequence(300);
  const auto all = runner.Feed(whole, tokens, 300, LogitRows::kAll);
  const kv::Window window{32, 0, 64, {{{0, 32}, {64, 96}, {128, 160}, {192, 224}, {256, 288}}}};
  WindowedSequence sequence(runner, window, 100, 300);
  std::vector<float> logits;
  for (size_t at = 0; at < 300; at += 100) {
    const auto part = sequence.Feed(std::span(tokens).subspan(at, 100));
    logits.insert(logits.end(), part.begin(), part.end());
  }
  EXPECT_EQ(logits, all);
}

}  // namespace
}  // namespace baton::model
