// SPDX-License-Identifier: Apache-2.0
// Decode and prefill attention over paged blocks, against `ref` segment by
// segment, and bit for bit against each other.
#include <gtest/gtest.h>

#include "common/base/half_float.h"
#include "tests/kernels/cuda/attention_world.h"

namespace baton::gpu {
namespace {

class GpuAttentionTest : public ::testing::TestWithParam<KvElement> {};

TEST_P(GpuAttentionTest, DecodeAgreesAtBordersOfBlocksAndSegments) {
  ExpectDecode({64, 2, 3, GetParam()},
               {0, 1, 30, 31, 32, 33, 63, 64, 255, 256, 257, 287, 288, 511, 512, 700});
}

TEST_P(GpuAttentionTest, DecodeAgreesForEveryGroupAndHeadSize) {
  for (uint32_t head_dim : {16u, 64u, 128u}) {
    for (uint32_t group : {1u, 2u, 3u, 8u, 15u, 16u, 20u}) {
      if (BATON_SANITIZED && group != 3 && group != 20) continue;  // sanitizers are slow
      ExpectDecode({head_dim, 2, group, GetParam()}, {17, 260});
    }
  }
}

TEST_P(GpuAttentionTest, DecodeLeavesPaddedSequencesAlone) {
  ExpectDecode({128, 1, 16, GetParam()}, {40, -1, 0, -1});
}

TEST_P(GpuAttentionTest, PrefillAgreesAtBordersOfBlocksAndSegments) {
  ExpectPrefill({64, 2, 2, GetParam()}, {{0, 1}, {0, 33}, {31, 3}, {250, 12}, {510, 5}});
}

TEST_P(GpuAttentionTest, PrefillAgreesForEveryGroupAndHeadSize) {
  for (uint32_t head_dim : {16u, 64u, 128u}) {
    for (uint32_t group : {1u, 3u, 8u, 16u}) {
      if (BATON_SANITIZED && group != 3) continue;
      ExpectPrefill({head_dim, 2, group, GetParam()}, {{0, 9}, {254, 6}});
    }
  }
}

// What the engine relies on: a token's context has the same bits whether it was
// decoded, or computed in any chunk of a prompt, whatever is beside it.
TEST_P(GpuAttentionTest, DecodeAndPrefillOfAnyChunkHaveTheSameBits) {
  const Shape shape{64, 1, 3, GetParam()};
  constexpr uint32_t kTokens = 300;
  World world(shape, {kTokens});
  const Queries all(shape, kTokens);
  const auto whole = Prefill(shape, world, all, {{0, kTokens}});
  const uint32_t inputs = shape.heads() * shape.head_dim;
  for (const PromptSlice& slice : {PromptSlice{0, 7}, PromptSlice{7, 30}, PromptSlice{250, 50}}) {
    const auto chunk =
        Prefill(shape, world, all.Part(shape, slice.first_position, slice.tokens), {slice});
    for (uint32_t t = 0; t < slice.tokens; ++t) {
      EXPECT_EQ(ActivationRow(chunk, t, inputs),
                ActivationRow(whole, slice.first_position + t, inputs));
    }
  }
  for (uint32_t position : {0u, 31u, 32u, 200u, 255u, 256u, 299u}) {
    const auto one =
        Decode(shape, world, all.Part(shape, position, 1), {static_cast<int32_t>(position)});
    EXPECT_EQ(ActivationRow(one, 0, inputs), ActivationRow(whole, position, inputs)) << position;
  }
}

TEST_P(GpuAttentionTest, BitsAreTheSameInEverySchedule) {
  const Shape shape{128, 1, 16, GetParam()};
  World world(shape, {270, 40});
  const Queries queries(shape, 2), prompt(shape, 10);
  const auto decoded = Decode(shape, world, queries, {269, 39});
  const auto prefilled = Prefill(shape, world, prompt, {{260, 10}});
  for (auto schedule : kSchedules) {
    const WithSchedule scope(schedule);
    EXPECT_EQ(Decode(shape, world, queries, {269, 39}), decoded);
    EXPECT_EQ(Prefill(shape, world, prompt, {{260, 10}}), prefilled);
  }
}

// Large scores neither overflow nor lose the one token that counts.
TEST_P(GpuAttentionTest, OneTokenCanHaveAllTheWeight) {
  const Shape shape{64, 1, 1, GetParam()};
  World world(shape, {300});
  Queries queries(shape, 1);
  for (size_t i = 0; i < queries.values.size(); ++i) {
    queries.values[i] = Bf16ToFloat(FloatToBf16(queries.values[i] * 500));
    queries.stored[i] = FloatToBf16(queries.values[i]);
  }
  const auto context = Decode(shape, world, queries, {299});
  ExpectNear(ActivationRow(context, 0, 64), world.Reference(0, 0, 299, queries.values), "all");
}

INSTANTIATE_TEST_SUITE_P(Elements, GpuAttentionTest,
                         ::testing::Values(KvElement::kBf16, KvElement::kInt8),
                         [](const auto& test) {
                           return test.param == KvElement::kInt8 ? "Int8" : "Bf16";
                         });

}  // namespace
}  // namespace baton::gpu
