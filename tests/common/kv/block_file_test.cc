// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kMostTokens = 256;
constexpr uint64_t kSlot = 4096 + 4096;  // tokens, and the block of OneLayer()

KvLayout OneLayer() {
  KvLayout layout;
  layout.layers = 1;
  layout.kv_heads = 1;
  layout.head_dim = 16;
  layout.type = KvType::kF32;
  layout.slice_layout = "test/1";
  layout.model_fingerprint = "model";
  layout.numerics_id = "n1";
  return layout;
}

class BlockFileTest : public ::testing::Test {
 protected:
  BlockFileTest() {
    std::string pattern = ::testing::TempDir() + "/baton-blocks-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/file";
    for (uint32_t i = 0; i < 8; ++i) {
      std::memset(arena_.Layer(BlockId{i}, 0), static_cast<int>(i + 1), OneLayer().BlockBytes());
    }
  }
  ~BlockFileTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<BlockFile>> Open(uint64_t slots, bool keep = true,
                                                  const KvLayout& layout = OneLayer()) {
    return BlockFile::Open(layout, {path_, 4096 + slots * kSlot, keep, kMostTokens});
  }
  // Of `blocks` blocks that begin with `first`.
  static std::vector<TokenId> Prefix(TokenId first, uint32_t blocks) {
    std::vector<TokenId> tokens(blocks * kBlockTokens);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  static prefix::Hash128 HashOf(uint64_t value) { return {value, ~value}; }
  // What was put from block `from` comes back into block 7.
  bool ComesBack(BlockFile& file, uint64_t hash, const std::vector<TokenId>& prefix,
                 uint32_t from) {
    std::memset(arena_.Layer(BlockId{7}, 0), 0xee, OneLayer().BlockBytes());
    return file.Load(HashOf(hash), prefix, arena_, BlockId{7}) &&
           std::memcmp(arena_.Layer(BlockId{7}, 0), arena_.Layer(BlockId{from}, 0),
                       OneLayer().BlockBytes()) == 0;
  }

  const KvArena arena_ = *KvArena::Create(OneLayer(), 8);
  std::string folder_, path_;
};

TEST_F(BlockFileTest, BlocksComeBackByHashAndTokens) {
  const auto file = Open(4);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->slots(), 4u);
  (*file)->Put(HashOf(1), Prefix(10, 1), arena_, BlockId{0});
  (*file)->Put(HashOf(2), Prefix(10, 2), arena_, BlockId{1});
  EXPECT_TRUE(ComesBack(**file, 1, Prefix(10, 1), 0));
  EXPECT_TRUE(ComesBack(**file, 2, Prefix(10, 2), 1));
  EXPECT_FALSE(ComesBack(**file, 3, Prefix(10, 1), 0)) << "another hash";
  EXPECT_FALSE(ComesBack(**file, 1, Prefix(11, 1), 0)) << "a collision of hashes";
  EXPECT_FALSE(ComesBack(**file, 2, Prefix(10, 1), 1)) << "a collision of other length";
  EXPECT_EQ((*file)->stats().stored, 2u);
  EXPECT_EQ((*file)->stats().loaded, 2u);
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(BlockFileTest, WhatWasWrittenFirstGoesFirstAndTheFileDoesNotGrow) {
  const auto file = Open(3);
  ASSERT_TRUE(file.ok());
  for (uint64_t i = 1; i <= 5; ++i) {
    (*file)->Put(HashOf(i), Prefix(static_cast<TokenId>(i), 1), arena_,
                 BlockId{static_cast<uint32_t>(i)});
  }
  EXPECT_EQ((*file)->used(), 3u);
  for (uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(ComesBack(**file, i, Prefix(static_cast<TokenId>(i), 1), static_cast<uint32_t>(i)),
              i > 2)
        << i;
  }
  EXPECT_EQ(std::filesystem::file_size(path_), 4096 + 3 * kSlot);
}

TEST_F(BlockFileTest, KeptFileSurvivesAndGoesOnWhereItStood) {
  {
    const auto file = Open(3);
    for (uint64_t i = 1; i <= 4; ++i) {
      (*file)->Put(HashOf(i), Prefix(static_cast<TokenId>(i), 1), arena_, BlockId{2});
    }
  }
  const auto file = Open(3);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->stats().found_at_open, 3u);
  EXPECT_TRUE(ComesBack(**file, 4, Prefix(4, 1), 2));
  (*file)->Put(HashOf(5), Prefix(5, 1), arena_, BlockId{3});
  EXPECT_FALSE((*file)->Has(HashOf(2), Prefix(2, 1))) << "the oldest";
  EXPECT_TRUE(ComesBack(**file, 3, Prefix(3, 1), 2));
  EXPECT_TRUE(ComesBack(**file, 5, Prefix(5, 1), 3));
}

TEST_F(BlockFileTest, FileThatIsNotKeptIsGone) {
  const auto file = Open(3, /*keep=*/false);
  ASSERT_TRUE(file.ok());
  (*file)->Put(HashOf(1), Prefix(1, 1), arena_, BlockId{2});
  EXPECT_TRUE(ComesBack(**file, 1, Prefix(1, 1), 2));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(BlockFileTest, OtherLayoutOrSizeBeginsAnew) {
  KvLayout other = OneLayer();
  other.numerics_id = "n2";
  for (const bool size : {false, true}) {
    (*Open(3))->Put(HashOf(1), Prefix(1, 1), arena_, BlockId{2});
    const auto file = size ? Open(2) : Open(3, true, other);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->used(), 0u);
  }
}

// Wherever it is: what comes back is what was put, or nothing.
TEST_F(BlockFileTest, FileOfSomethingElseIsLeftAlone) {
  std::ofstream(path_) << "a letter";
  const auto file = Open(3);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(file.status().message().find(path_), std::string::npos);
  std::string text;
  std::getline(std::ifstream(path_), text);
  EXPECT_EQ(text, "a letter");
}

TEST_F(BlockFileTest, DamageCostsAMiss) {
  for (uint64_t at = 4096; at < 4096 + kSlot; at += 101) {
    (*Open(1))->Put(HashOf(1), Prefix(1, 1), arena_, BlockId{2});
    std::fstream damaged(path_, std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekg(static_cast<std::streamoff>(at));
    const int byte = damaged.get();
    damaged.seekp(static_cast<std::streamoff>(at));
    damaged.put(static_cast<char>(byte ^ 0x40));
    damaged.close();
    const auto file = Open(1);
    ASSERT_TRUE(file.ok());
    const bool has = (*file)->Has(HashOf(1), Prefix(1, 1));
    const bool loaded = (*file)->Load(HashOf(1), Prefix(1, 1), arena_, BlockId{7});
    EXPECT_EQ(loaded, has && ComesBack(**file, 1, Prefix(1, 1), 2)) << at;
    EXPECT_EQ((*file)->stats().damaged, loaded ? 0u : 1u) << at;
    EXPECT_EQ((*file)->used(), loaded ? 1u : 0u) << at;
    std::filesystem::remove(path_);
  }
}

TEST_F(BlockFileTest, RefusalsSayWhatIsWrong) {
  const auto small = BlockFile::Open(OneLayer(), {path_, kSlot, true, kMostTokens});
  EXPECT_TRUE(absl::IsInvalidArgument(small.status()));
  EXPECT_THAT(std::string(small.status().message()), HasSubstr("8192 bytes hold no KV block"));
  const auto nowhere =
      BlockFile::Open(OneLayer(), {folder_ + "/no/file", 1 << 20, true, kMostTokens});
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("/no/file: No such file"));
  const auto first = Open(3), second = Open(3);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
}

}  // namespace
}  // namespace baton::kv
