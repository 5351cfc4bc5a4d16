// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/put_plan.h"

#include <gtest/gtest.h>

#include <map>

namespace baton::prefill_worker {
namespace {

// A slice (one layer of one block) takes 2 x 32 x 16 x 2 = 2048 bytes.
kv::KvLayout Layout(uint32_t layers) {
  kv::KvLayout layout;
  layout.layers = layers;
  layout.kv_heads = 1;
  layout.head_dim = 16;
  layout.type = kv::KvType::kBf16;
  return layout;
}

TEST(PlanPuts, EverySliceIsCoveredOnceWithinTheLimit) {
  for (const uint32_t layers : {1u, 2u, 7u, 30u}) {
    for (const uint32_t blocks : {1u, 3u, 16u}) {
      for (const size_t most : {size_t{1}, size_t{2048}, size_t{10000}, size_t{1} << 20}) {
        const kv::KvLayout layout = Layout(layers);
        std::map<std::pair<uint32_t, uint32_t>, int> covered;
        for (const transport::PutRange& range : PlanPuts(layout, 5, 5 + blocks, most)) {
          const size_t slices =
              (range.layer_end - range.layer_begin) * (range.block_end - range.block_begin);
          EXPECT_LE(slices * layout.LayerBytes(), std::max(most, layout.LayerBytes()));
          for (uint32_t block = range.block_begin; block < range.block_end; ++block) {
            for (uint32_t layer = range.layer_begin; layer < range.layer_end; ++layer) {
              ++covered[{block, layer}];
            }
          }
        }
        EXPECT_EQ(covered.size(), size_t{layers} * blocks);
        for (const auto& [slice, times] : covered) {
          EXPECT_EQ(times, 1);
          EXPECT_GE(slice.first, 5u);
          EXPECT_LT(slice.first, 5 + blocks);
          EXPECT_LT(slice.second, layers);
        }
      }
    }
  }
}

TEST(PlanPuts, LayersAreSplitBeforeBlocks) {
  const auto ranges = PlanPuts(Layout(8), 0, 4, 4 * 4 * 2048);
  ASSERT_EQ(ranges.size(), 2);
  for (const transport::PutRange& range : ranges) {
    EXPECT_EQ(range.layer_end - range.layer_begin, 4);
    EXPECT_EQ(range.block_end - range.block_begin, 4);
  }
}

TEST(PlanPuts, NoBlocksNoPuts) { EXPECT_TRUE(PlanPuts(Layout(2), 3, 3, 1 << 20).empty()); }

}  // namespace
}  // namespace baton::prefill_worker
