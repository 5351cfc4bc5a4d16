// SPDX-License-Identifier: Apache-2.0
// That the model for tests tells right KV from wrong.
#include "common/model/fake/fake_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "common/kv/arena.h"

namespace baton::model {
namespace {

using kv::BlockId;

class FakeModelTest : public ::testing::Test {
 protected:
  void Make(const FakeOptions& options) {
    options_ = options;
    auto model = MakeFakeModel(options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto arena = kv::KvArena::Create(model_->kv_layout(), 16);
    ASSERT_TRUE(arena.ok()) << arena.status();
    arena_ = std::make_unique<kv::KvArena>(*std::move(arena));
  }

  // Runs tokens [begin, end) of `tokens`; the greedy token after them.
  TokenId Run(std::span<const TokenId> tokens, size_t begin, size_t end,
              std::span<const BlockId> blocks) {
    const Slice slice{tokens.subspan(begin, end - begin), static_cast<uint32_t>(begin), blocks,
                      LogitRows::kLast};
    std::vector<float> logits(options_.vocabulary_size);
    EXPECT_TRUE(model_->Forward({&slice, 1}, *arena_, logits, {}).ok());
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }

  FakeOptions options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<kv::KvArena> arena_;
};

std::vector<TokenId> SomeTokens(size_t count) {
  std::mt19937 random(4);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 1000);
  return tokens;
}

TEST_F(FakeModelTest, ChunksAndBlockOrderDoNotChangeTheToken) {
  Make({});
  const auto tokens = SomeTokens(100);
  const TokenId expected = FakeReference(options_, tokens, 1)[0];
  const std::vector<BlockId> blocks = {BlockId{7}, BlockId{0}, BlockId{12}, BlockId{3}};
  EXPECT_EQ(Run(tokens, 0, 100, blocks), expected);
  Run(tokens, 0, 33, blocks);
  Run(tokens, 33, 34, blocks);
  EXPECT_EQ(Run(tokens, 34, 100, blocks), expected);
}

TEST_F(FakeModelTest, LogitsOfAllRowsEqualThoseOfEachLastRow) {
  Make({});
  const auto tokens = SomeTokens(40);
  const std::vector<BlockId> blocks = {BlockId{1}, BlockId{2}};
  const Slice slice{tokens, 0, blocks, LogitRows::kAll};
  std::vector<float> logits(40 * options_.vocabulary_size);
  ASSERT_TRUE(model_->Forward({&slice, 1}, *arena_, logits, {}).ok());
  for (size_t row = 0; row < 40; ++row) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * options_.vocabulary_size);
    const auto best = std::max_element(begin, begin + options_.vocabulary_size) - begin;
    EXPECT_EQ(best, FakeReference(options_, std::span(tokens).first(row + 1), 1)[0]);
  }
}

// Any single byte of any earlier position, and any exchange of blocks, shows.
TEST_F(FakeModelTest, EveryWrongByteChangesTheLogits) {
  Make({.layers = 2, .kv_heads = 1, .kv_type = kv::KvType::kBf16});
  const auto tokens = SomeTokens(65);
  const std::vector<BlockId> blocks = {BlockId{5}, BlockId{6}, BlockId{7}};
  const auto row = [&](std::span<const BlockId> table) {
    const Slice slice{std::span(tokens).subspan(64), 64, table, LogitRows::kLast};
    std::vector<float> logits(options_.vocabulary_size);
    EXPECT_TRUE(model_->Forward({&slice, 1}, *arena_, logits, {}).ok());
    return logits;
  };
  Run(tokens, 0, 64, blocks);
  const std::vector<float> right = row(blocks);
  for (uint32_t block : {5u, 6u}) {
    for (uint32_t layer : {0u, 1u}) {
      for (std::byte& byte : arena_->LayerSpan(BlockId{block}, layer)) {
        byte ^= std::byte{1};
        ASSERT_NE(row(blocks), right);
        byte ^= std::byte{1};
      }
    }
  }
  EXPECT_EQ(row(blocks), right);
  EXPECT_NE(row(std::vector<BlockId>{BlockId{6}, BlockId{5}, BlockId{7}}), right);
  EXPECT_NE(row(std::vector<BlockId>{BlockId{5}, BlockId{9}, BlockId{7}}), right);
}

TEST_F(FakeModelTest, ScriptDecidesTheText) {
  FakeOptions options{.vocabulary_size = 10};
  for (TokenId token = 0; token < 10; ++token) options.script.push_back((token * 3 + 1) % 10);
  Make(options);
  const std::vector<TokenId> tokens = {4, 2};
  EXPECT_EQ(Run(tokens, 0, 2, std::vector<BlockId>{BlockId{0}}), 7u);
}

TEST_F(FakeModelTest, ChosenTokenGivesNan) {
  Make({.nan_token = 8});
  const std::vector<TokenId> tokens = {1, 8};
  const std::vector<BlockId> blocks = {BlockId{0}};
  const Slice slice{tokens, 0, blocks, LogitRows::kLast};
  std::vector<float> logits(options_.vocabulary_size);
  ASSERT_TRUE(model_->Forward({&slice, 1}, *arena_, logits, {}).ok());
  EXPECT_TRUE(std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }));
}

TEST(MakeFakeModel, RefusesWhatMakesNoModel) {
  EXPECT_FALSE(MakeFakeModel({.layers = 0}).ok());
  EXPECT_FALSE(MakeFakeModel({.head_dim = 20}).ok());
  EXPECT_FALSE(MakeFakeModel({.vocabulary_size = 5, .usable_vocabulary = 6}).ok());
  EXPECT_FALSE(MakeFakeModel({.vocabulary_size = 5, .script = {1, 2}}).ok());
  EXPECT_FALSE(MakeFakeModel({.vocabulary_size = 2, .script = {1, 2}}).ok());
}

}  // namespace
}  // namespace baton::model
