// SPDX-License-Identifier: Apache-2.0
// Evicted blocks in a file, and back before their turn.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;

class FileTierTest : public ::testing::Test {
 protected:
  FileTierTest() {
    std::string pattern = ::testing::TempDir() + "/baton-tier-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    fake_.context_tokens = 1024;
  }
  ~FileTierTest() override { std::filesystem::remove_all(folder_); }

  void Start(uint32_t blocks, bool keep = false, uint64_t bytes = 8 << 20) {
    engine_.reset();
    Options options;
    options.kv_blocks = blocks;
    options.chunk_tokens = 64;
    options.swap_bytes = 1 << 18;
    options.block_file = {folder_ + "/blocks", bytes, keep, 0};
    recorder_.Forget();
    engine_ = MakeEngine(fake_, options, &recorder_);
  }
  // Tokens that were cached.
  uint32_t Ask(const std::vector<TokenId>& prompt, uint32_t output = 4) {
    const SequenceSpec spec = MakeSpec(++key_, prompt, output);
    engine_->Submit(spec);
    EXPECT_TRUE(recorder_.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder_.Of(spec.ref).tokens, FakeReference(fake_, prompt, output));
    return recorder_.Of(spec.ref).cached;
  }
  std::vector<TokenId> Prompt(size_t tokens) { return RandomPrompt(random_, tokens, fake_); }

  FakeOptions fake_;
  std::string folder_;
  std::mt19937 random_{1};
  Recorder recorder_;
  std::unique_ptr<Engine> engine_;
  uint64_t key_ = 0;
};

TEST_F(FileTierTest, EvictedPrefixesComeBack) {
  Start(16);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 5; ++i) prompts.push_back(Prompt(330));
  for (const auto& prompt : prompts) EXPECT_EQ(Ask(prompt), 0u);
  EXPECT_GT(engine_->load().file_stored_blocks, 30u);
  for (const auto& prompt : prompts) EXPECT_GE(Ask(prompt), 320u) << "of 330, all full blocks";
  EXPECT_GT(engine_->load().file_loaded_blocks, 30u);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/blocks"));
  ExpectIdle(*engine_);
}

// Also what was still in the pool.
TEST_F(FileTierTest, KeptFileServesTheNextProcess) {
  const std::vector<TokenId> first = Prompt(330), second = Prompt(330);
  Start(16, /*keep=*/true);
  Ask(first);
  Ask(second);
  Start(16, /*keep=*/true);
  EXPECT_GE(Ask(first), 320u);
  EXPECT_GE(Ask(second), 320u);
  fake_.seed = 2;  // another model: nothing of it is used
  Start(16, /*keep=*/true);
  EXPECT_EQ(Ask(first), 0u);
  ExpectIdle(*engine_);
}

TEST_F(FileTierTest, TenantsShareNothingAndOptOutsTakeNothing) {
  Start(16, /*keep=*/true);
  const std::vector<TokenId> prompt = Prompt(330);
  SequenceSpec spec = MakeSpec(++key_, prompt, 4);
  spec.cache_salt = "org_1";
  engine_->Submit(spec);
  ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
  Start(16, /*keep=*/true);
  EXPECT_EQ(Ask(prompt), 0u);
  spec.prefix_cache = false;
  for (const uint32_t cached : {0u, 320u}) {
    spec.ref.key = ++key_;
    engine_->Submit(spec);
    ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder_.Of(spec.ref).cached, cached);
    spec.prefix_cache = true;
  }
}

TEST_F(FileTierTest, DamageIsComputedAgain) {
  const std::vector<TokenId> prompt = Prompt(330);
  Start(16, /*keep=*/true);
  Ask(prompt);
  engine_.reset();
  {
    std::fstream file(folder_ + "/blocks", std::ios::in | std::ios::out | std::ios::binary);
    // Every payload; heads and tokens take two pages before each.
    const auto slot = 2 * 4096 + 4 * 4096;
    for (int at = 4096 + 2 * 4096; at < (8 << 20) - slot; at += slot) {
      file.seekp(at + 77);
      file.put('x');
    }
  }
  Start(16, /*keep=*/true);
  EXPECT_EQ(Ask(prompt), 0u);
  EXPECT_GE(engine_->load().file_damaged_blocks, 1u);
  ExpectIdle(*engine_);
}

// Shared prefixes, growth, preemption and a file that is too small for all:
// every token is right, and no block is lost.
TEST_F(FileTierTest, NoTokenChangesUnderPressure) {
  Start(20, /*keep=*/false, 1 << 20);
  const std::vector<TokenId> trunk = Prompt(400);
  std::vector<SequenceSpec> specs;
  for (int i = 0; i < 60; ++i) {
    std::vector<TokenId> prompt(trunk.begin(), trunk.begin() + static_cast<int>(random_() % 400));
    const std::vector<TokenId> own = Prompt(1 + random_() % 100);
    prompt.insert(prompt.end(), own.begin(), own.end());
    specs.push_back(MakeSpec(++key_, prompt, 1 + static_cast<uint32_t>(random_() % 80)));
    if (i % 7 == 0) specs.back().window = {.tokens = 64, .sinks = 32};
    engine_->Submit(specs.back());
  }
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder_.WaitForEnd(spec.ref));
    EXPECT_EQ(recorder_.Of(spec.ref).tokens,
              FakeReference(fake_, spec.prompt, spec.max_tokens, spec.window));
  }
  const Load load = engine_->load();
  EXPECT_GT(load.file_loaded_blocks, 0u);
  EXPECT_GT(load.file_stored_blocks, load.file_blocks) << "never full";
  ExpectIdle(*engine_);
}

// Blocks change their places all the while: what is swapped out and in, written to
// the file and read back, shared by choices and rolled over by windows is still
// that of its sequence.
TEST_F(FileTierTest, BlocksThatMoveKeepTheirPlaceInEveryTier) {
  fake_.delay_per_step = absl::Microseconds(200);
  fake_.delay_per_token = absl::Microseconds(20);  // so that computing again costs more
  Start(60, /*keep=*/false, 4 << 20);
  const std::vector<TokenId> trunk = Prompt(300);
  std::vector<SequenceSpec> specs;
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<TokenId> prompt(trunk.begin(), trunk.begin() + static_cast<int>(random_() % 300));
    const std::vector<TokenId> own = Prompt(1 + random_() % 60);
    prompt.insert(prompt.end(), own.begin(), own.end());
    specs.push_back(MakeSpec(++key_, prompt, 100 + static_cast<uint32_t>(random_() % 150)));
    if (i % 5 == 0) specs.back().window = {.tokens = 64, .sinks = 32};
    if (i % 5 == 1) specs.back().choices = 2;
  }
  size_t submitted = 0;
  for (uint32_t keep = 0; recorder_.ended() < specs.size(); keep = (keep + 17) % 60) {
    // 16 at a time: more than the pool holds, less than would never leave room.
    while (submitted < specs.size() && submitted < recorder_.ended() + 16) {
      engine_->Submit(specs[submitted++]);
    }
    engine_->Trim(keep);
    absl::SleepFor(absl::Microseconds(300));
  }
  for (const SequenceSpec& spec : specs) {
    ASSERT_TRUE(recorder_.Of(spec.ref).end.status.ok()) << recorder_.Of(spec.ref).end.status;
    for (const auto& [choice, heard] : recorder_.Of(spec.ref).choices) {
      EXPECT_EQ(heard.tokens, FakeReference(fake_, spec.prompt, spec.max_tokens, spec.window))
          << spec.ref.key << " choice " << choice;
    }
  }
  const Load load = engine_->load();
  EXPECT_GT(load.blocks_moved, 20u);
  EXPECT_GT(load.preemptions, 0u);  // by swapping or computing again, as it is predicted
  EXPECT_GT(load.file_loaded_blocks, 0u);
  ExpectIdle(*engine_);
}

}  // namespace
}  // namespace baton::engine
