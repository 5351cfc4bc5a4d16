// SPDX-License-Identifier: Apache-2.0
// A row has the same bits whatever chunk, batch, thread count and block order
// it is computed with.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include "common/cores/core_share.h"
#include "tests/common/model/model_runner.h"

namespace baton::model {
namespace {

struct Case {
  std::string isa;
  Precision precision;
  kv::KvType kv_type;
};

class BitIdentityTest : public ::testing::TestWithParam<Case> {
 protected:
  LoadOptions options(uint32_t threads) const {
    LoadOptions options = Options(GetParam().isa, GetParam().precision, threads);
    options.kv_type = GetParam().kv_type;
    return options;
  }
  bool slow() const { return GetParam().isa == "ref"; }

  static constexpr uint32_t kLength = 300;  // beyond one attention segment
};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_P(BitIdentityTest, ChunkSizesThreadsAndBlockOrders) {
  std::vector<float> expected;
  for (uint32_t threads : {2u, 1u}) {
    ModelRunner runner("embedded", options(threads));
    ASSERT_TRUE(runner.ok());
    const auto tokens = RandomTokens(kLength, runner.vocabulary(), 1);
    for (uint32_t chunk : {512u, 5u, 31u, 32u, 100u}) {
      // Many small steps of two threads crawl on a busy machine.
      if (chunk == 5 && (slow() || threads > 1)) continue;
      TestSequence sequence = runner.NewSequence(kLength, chunk);
      const auto logits = runner.Feed(sequence, tokens, chunk, LogitRows::kAll);
      runner.Reset();
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(SameBits(logits, expected)) << "chunk " << chunk << ", threads " << threads;
    }
  }
}

// One token at a time, over the border of a block and of a segment.
TEST_P(BitIdentityTest, DecodingAfterAPromptOfAnyLength) {
  for (uint32_t threads : {2u, 1u}) {
    ModelRunner runner("embedded", options(threads));
    ASSERT_TRUE(runner.ok());
    const auto tokens = RandomTokens(270, runner.vocabulary(), 2);
    TestSequence whole = runner.NewSequence(270, 1);
    const auto expected = runner.Feed(whole, tokens, 512, LogitRows::kAll);
    for (uint32_t prompt : {1u, 250u}) {
      TestSequence sequence = runner.NewSequence(270, prompt);
      runner.Feed(sequence, std::span(tokens).first(prompt), 512, LogitRows::kNone);
      const auto logits =
          runner.Feed(sequence, std::span(tokens).subspan(prompt, 12), 1, LogitRows::kAll);
      EXPECT_TRUE(SameBits(logits, std::span(expected).subspan(prompt * runner.vocabulary(),
                                                               12 * runner.vocabulary())))
          << "prompt " << prompt << ", threads " << threads;
    }
    runner.Reset();
  }
}

// Another worker comes and goes between the steps.
TEST_P(BitIdentityTest, StepsOnAChangingPartOfTheCores) {
  if (slow()) return;  // the same code above the kernels
  std::string folder = ::testing::TempDir() + "/cores-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  LoadOptions shared = options(2);
  auto cores = cores::CoreShare::Create(cores::Kind::kDecode, folder);
  ASSERT_TRUE(cores.ok()) << cores.status();
  shared.cores = *std::move(cores);
  // Steps pin the thread that runs them: not this one.
  std::thread([&] {
    ModelRunner alone("embedded", options(1)), runner("embedded", shared);
    ASSERT_TRUE(alone.ok() && runner.ok());
    const auto tokens = RandomTokens(kLength, runner.vocabulary(), 5);
    TestSequence expected_sequence = alone.NewSequence(kLength),
                 sequence = runner.NewSequence(kLength);
    const auto expected = alone.Feed(expected_sequence, tokens, 512, LogitRows::kAll);
    std::unique_ptr<cores::CoreShare> other;
    std::vector<float> logits;
    for (uint32_t done = 0, turn = 0; done < kLength; ++turn) {
      if (turn % 2 == 0) {
        other.reset();
      } else {
        other = *cores::CoreShare::Create(cores::Kind::kPrefill, folder);
        other->Begin();
      }
      const uint32_t step = std::min(turn < 4 ? 70u : 5u, kLength - done);
      const auto part =
          runner.Feed(sequence, std::span(tokens).subspan(done, step), step, LogitRows::kAll);
      logits.insert(logits.end(), part.begin(), part.end());
      done += step;
    }
    EXPECT_TRUE(SameBits(logits, expected));
  }).join();
  std::filesystem::remove_all(folder);
}

// And while a step runs: parts change from layer to layer.
TEST_P(BitIdentityTest, LayersOnAChangingPartOfTheCores) {
  if (slow()) return;
  std::string folder = ::testing::TempDir() + "/cores-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  LoadOptions shared = options(2);
  shared.cores = *cores::CoreShare::Create(cores::Kind::kPrefill, folder);
  std::atomic<bool> over = false;
  std::thread other([&] {
    const auto decode = *cores::CoreShare::Create(cores::Kind::kDecode, folder);
    while (!over) {
      decode->Begin();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      decode->Release();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  std::thread([&] {
    ModelRunner alone("embedded", options(1)), runner("embedded", shared);
    ASSERT_TRUE(alone.ok() && runner.ok());
    const auto tokens = RandomTokens(kLength, runner.vocabulary(), 6);
    TestSequence expected_sequence = alone.NewSequence(kLength);
    const auto expected = alone.Feed(expected_sequence, tokens, 512, LogitRows::kAll);
    for (int i = 0; i < 10; ++i) {
      TestSequence sequence = runner.NewSequence(kLength);
      EXPECT_TRUE(SameBits(runner.Feed(sequence, tokens, 150, LogitRows::kAll), expected));
      runner.Reset();
    }
  }).join();
  over = true;
  other.join();
  std::filesystem::remove_all(folder);
}

// Sequences of different lengths, each with its own next tokens.
struct Batch {
  std::vector<TestSequence> sequences;
  std::vector<std::vector<TokenId>> next;
};

std::vector<Slice> Slices(const Batch& batch) {
  std::vector<Slice> slices;
  for (size_t i = 0; i < batch.next.size(); ++i) {
    slices.push_back(
        {batch.next[i], batch.sequences[i].length, batch.sequences[i].blocks, LogitRows::kLast});
  }
  return slices;
}

// `count` sequences whose contexts stand in the arena.
Batch MakeBatch(ModelRunner& runner, uint32_t count, uint32_t long_chunk) {
  Batch batch;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t context = 3 + i * 37 % 290;
    const uint32_t steps = i == 1 ? long_chunk : 1;
    batch.sequences.push_back(runner.NewSequence(context + steps, i));
    runner.Feed(batch.sequences[i], RandomTokens(context, runner.vocabulary(), 10 + i), 512,
                LogitRows::kNone);
    batch.next.push_back(RandomTokens(steps, runner.vocabulary(), 100 + i));
  }
  return batch;
}

TEST_P(BitIdentityTest, BatchesOfDecodingAndPrefillingSequences) {
  for (uint32_t threads : {2u, 1u}) {
    ModelRunner runner("embedded", options(threads), 256);
    ASSERT_TRUE(runner.ok());
    const uint32_t width = runner.vocabulary();
    for (const auto& [count, long_chunk] :
         {std::pair{2u, 1u}, {7u, 1u}, {16u, 1u}, {9u, 60u}, {3u, 20u}}) {
      if (slow() && count != 9) continue;
      const Batch batch = MakeBatch(runner, count, long_chunk);
      const auto slices = Slices(batch);
      std::vector<float> together(size_t{count} * width);
      ASSERT_TRUE(runner.model().Forward(slices, runner.arena(), together, nullptr).ok());
      for (uint32_t i = 0; i < count; i += threads) {
        std::vector<float> alone(width);
        ASSERT_TRUE(runner.model().Forward({&slices[i], 1}, runner.arena(), alone, nullptr).ok());
        EXPECT_TRUE(SameBits(alone, std::span(together).subspan(i * width, width)))
            << "sequence " << i << " of " << count << ", threads " << threads;
      }
      runner.Reset();
    }
  }
}

// Choices of one request: the same blocks up to where they part.
TEST_P(BitIdentityTest, SequencesThatShareBlocksAndThoseThatDoNot) {
  constexpr uint32_t kPrompt = 780, kWhole = 768, kApart = 7;
  for (uint32_t threads : {2u, 1u}) {
    if (slow() && threads > 1) continue;
    LoadOptions longer = options(threads);
    longer.context_tokens = 1024;
    ModelRunner runner("embedded", longer, 1024);
    ASSERT_TRUE(runner.ok());
    const uint32_t width = runner.vocabulary();
    // One thread with many: they share an item of all three segments.
    const uint32_t count = threads == 1 ? 30 : 5;
    const auto prompt = RandomTokens(kPrompt, width, 3);
    TestSequence trunk = runner.NewSequence(kPrompt + kApart + 1);
    runner.Feed(trunk, prompt, 512, LogitRows::kNone);
    std::vector<TestSequence> forks;
    std::vector<std::vector<TokenId>> next;
    for (uint32_t i = 0; i < count; ++i) {
      TestSequence fork = runner.NewSequence(kPrompt + kApart + 1);
      std::copy_n(trunk.blocks.begin(), kWhole / kv::kBlockTokens, fork.blocks.begin());
      fork.length = kWhole;
      runner.Feed(fork, std::span(prompt).subspan(kWhole), 512, LogitRows::kNone);
      runner.Feed(fork, RandomTokens(i % 3, width, 20 + i), 1, LogitRows::kNone);
      forks.push_back(fork);
      next.push_back(RandomTokens(1, width, 40 + i));
    }
    std::vector<Slice> slices;
    for (uint32_t i = 0; i < count; ++i) {
      slices.push_back({next[i], forks[i].length, forks[i].blocks, LogitRows::kLast});
    }
    std::vector<float> together(size_t{count} * width);
    ASSERT_TRUE(runner.model().Forward(slices, runner.arena(), together, nullptr).ok());
    for (uint32_t i = 0; i < count; ++i) {
      std::vector<float> alone(width);
      ASSERT_TRUE(runner.model().Forward({&slices[i], 1}, runner.arena(), alone, nullptr).ok());
      EXPECT_TRUE(SameBits(alone, std::span(together).subspan(i * width, width)))
          << "fork " << i << ", threads " << threads;
    }
  }
}

TEST_P(BitIdentityTest, StaleNanInReusedBlocksIsNeverRead) {
  ModelRunner runner("embedded", options(1));
  ASSERT_TRUE(runner.ok());
  const auto tokens = RandomTokens(70, runner.vocabulary(), 5);
  std::vector<float> expected;
  for (int fill : {0, 0xff}) {
    runner.Fill(fill);  // 0xffffffff is a NaN
    for (uint32_t chunk : {1u, 7u, 70u}) {
      TestSequence sequence = runner.NewSequence(70);
      const auto logits = runner.Feed(sequence, tokens, chunk, LogitRows::kAll);
      if (expected.empty()) expected = logits;
      EXPECT_TRUE(SameBits(logits, expected)) << "fill " << fill << ", chunk " << chunk;
      runner.Reset();
      runner.Fill(fill);
    }
  }
}

TEST_P(BitIdentityTest, NanOfOneSequenceStaysInIt) {
  ModelRunner runner("embedded", options(2), 128);
  ASSERT_TRUE(runner.ok());
  const Batch batch = MakeBatch(runner, 4, 1);
  const auto slices = Slices(batch);
  const uint32_t width = runner.vocabulary();
  std::vector<float> clean(4 * width), dirty(4 * width);
  ASSERT_TRUE(runner.model().Forward(slices, runner.arena(), clean, nullptr).ok());
  const auto poisoned = runner.arena().LayerSpan(batch.sequences[2].blocks[0], 1);
  std::memset(poisoned.data(), 0xff, poisoned.size());
  ASSERT_TRUE(runner.model().Forward(slices, runner.arena(), dirty, nullptr).ok());
  for (uint32_t i = 0; i < 4; ++i) {
    const auto row = std::span(dirty).subspan(i * width, width);
    if (i == 2) {
      EXPECT_TRUE(std::isnan(row[0]));
    } else {
      EXPECT_TRUE(SameBits(row, std::span(clean).subspan(i * width, width))) << i;
    }
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const std::string& isa : AvailableIsas()) {
    if (BATON_SANITIZED && isa == "ref") continue;  // slow there; goldens run it, too
    cases.push_back({isa, Precision::kExact, kv::KvType::kF32});
    cases.push_back({isa, Precision::kFast, kv::KvType::kBf16});
    cases.push_back({isa, Precision::kFast, kv::KvType::kInt8});
    if (!isa.starts_with("avx")) continue;  // fast is exact there
    cases.push_back({isa, Precision::kFast, kv::KvType::kF32});
    cases.push_back({isa, Precision::kExact, kv::KvType::kInt8});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllBackends, BitIdentityTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) {
                           return test.param.isa +
                                  (test.param.precision == Precision::kExact ? "_exact_"
                                                                             : "_fast_") +
                                  std::string(kv::KvTypeName(test.param.kv_type));
                         });

}  // namespace
}  // namespace baton::model
