// SPDX-License-Identifier: Apache-2.0
#include "common/kv/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

KvLayout SomeLayout() {
  return {.layers = 30,
          .kv_heads = 3,
          .head_dim = 64,
          .type = KvType::kBf16,
          .slice_layout = "k-pairs-v-pairs/1",
          .model_fingerprint = "abc",
          .compute_id = "avx512",
          .numerics_id = "avx512/1"};
}

TEST(KvLayout, BytesFollowFromTheShape) {
  const KvLayout layout = SomeLayout();
  EXPECT_EQ(layout.SliceBytes(), 2u * 32 * 64);
  EXPECT_EQ(layout.LayerBytes(), 2u * 3 * 2 * 32 * 64);
  EXPECT_EQ(layout.BlockBytes(), 30u * 2 * 3 * 2 * 32 * 64);
}

TEST(KvLayout, Int8TakesAtMost52PercentOfBf16) {
  for (uint32_t head_dim : {64u, 96u, 128u, 256u}) {
    KvLayout int8 = SomeLayout(), bf16 = SomeLayout();
    int8.head_dim = bf16.head_dim = head_dim;
    int8.type = KvType::kInt8;
    EXPECT_EQ(int8.SliceBytes(), 32u * (head_dim + 2));
    EXPECT_LE(static_cast<double>(int8.BlockBytes()),
              0.52 * static_cast<double>(bf16.BlockBytes()));
  }
}

TEST(KvLayout, BlocksForTokensRoundsUp) {
  EXPECT_EQ(BlocksForTokens(0), 0u);
  EXPECT_EQ(BlocksForTokens(1), 1u);
  EXPECT_EQ(BlocksForTokens(32), 1u);
  EXPECT_EQ(BlocksForTokens(33), 2u);
}

TEST(KvLayout, EqualLayoutsAreCompatible) {
  EXPECT_TRUE(CheckCompatible(SomeLayout(), SomeLayout()).ok());
}

TEST(KvLayout, RefusalNamesFieldAndBothValues) {
  struct Case {
    void (*change)(KvLayout&);
    const char* message;
  };
  const Case cases[] = {
      {[](KvLayout& l) { l.layers = 28; }, "layers: ours is 30, theirs is 28"},
      {[](KvLayout& l) { l.kv_heads = 2; }, "kv_heads: ours is 3, theirs is 2"},
      {[](KvLayout& l) { l.head_dim = 128; }, "head_dim: ours is 64, theirs is 128"},
      {[](KvLayout& l) { l.type = KvType::kF32; }, "type: ours is bf16, theirs is f32"},
      {[](KvLayout& l) { l.slice_layout = "x/2"; },
       "slice_layout: ours is k-pairs-v-pairs/1, theirs is x/2"},
      {[](KvLayout& l) { l.model_fingerprint = "def"; },
       "model_fingerprint: ours is abc, theirs is def"},
      {[](KvLayout& l) { l.compute_id = "avx2"; }, "compute_id: ours is avx512, theirs is avx2"},
      {[](KvLayout& l) { l.numerics_id = "generic/1"; },
       "numerics_id: ours is avx512/1, theirs is generic/1"},
  };
  for (const Case& c : cases) {
    KvLayout theirs = SomeLayout();
    c.change(theirs);
    const absl::Status status = CheckCompatible(SomeLayout(), theirs);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(KvType, NamesRoundTrip) {
  for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
    EXPECT_EQ(*ParseKvType(KvTypeName(type)), type);
  }
  EXPECT_EQ(ParseKvType("int3").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::kv
