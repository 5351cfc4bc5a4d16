// SPDX-License-Identifier: Apache-2.0
// Attention with windows, sinks and strides: against `ref` over the blocks that are
// seen, and bit for bit in every chunk.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/attention_world.h"

namespace baton::gpu {
namespace {

// Windows within a segment, over a border and wider than one; segments of which
// nothing is seen lie between what is kept and the window.
constexpr Sight kSights[] = {{1, 0, 0}, {2, 1, 0}, {9, 2, 0}, {1, 0, 3}, {3, 1, 12}, {1, 10, 0}};

class GpuWindowTest : public ::testing::TestWithParam<KvElement> {};

TEST_P(GpuWindowTest, DecodeSeesWindowSinksAndStrides) {
  for (const Sight& sight : kSights) {
    SCOPED_TRACE(std::to_string(sight.before) + " blocks, sinks " + std::to_string(sight.sinks) +
                 ", stride " + std::to_string(sight.stride));
    ExpectDecode({64, 1, 3, GetParam()}, {0, 31, 64, 95, 96, 255, 256, 320, 543, 770}, sight);
  }
}

TEST_P(GpuWindowTest, PrefillSeesWindowSinksAndStrides) {
  for (const Sight& sight : kSights) {
    SCOPED_TRACE(std::to_string(sight.before) + " blocks, sinks " + std::to_string(sight.sinks) +
                 ", stride " + std::to_string(sight.stride));
    ExpectPrefill({16, 2, 1, GetParam()}, {{0, 100}, {90, 70}, {250, 12}, {500, 90}}, sight);
  }
}

TEST_P(GpuWindowTest, EveryHeadSizeAndGroup) {
  for (uint32_t head_dim : {16u, 64u, 128u}) {
    for (uint32_t group : {1u, 16u}) {
      if (BATON_SANITIZED && group != 1) continue;  // sanitizers are slow
      ExpectDecode({head_dim, 2, group, GetParam()}, {300}, {2, 1, 0});
      ExpectPrefill({head_dim, 2, group, GetParam()}, {{290, 10}}, {1, 0, 4});
    }
  }
}

TEST_P(GpuWindowTest, PaddedSequencesAreLeftAlone) {
  ExpectDecode({64, 1, 4, GetParam()}, {400, -1, 70, -1}, {1, 1, 0});
}

TEST_P(GpuWindowTest, DecodeAndPrefillOfAnyChunkHaveTheSameBits) {
  const Shape shape{64, 1, 3, GetParam()};
  constexpr uint32_t kTokens = 560;
  const uint32_t inputs = shape.heads() * shape.head_dim;
  for (const Sight& sight : {Sight{2, 1, 0}, Sight{1, 0, 5}, Sight{1, 0, 0}}) {
    World world(shape, {kTokens}, sight);
    const Queries all(shape, kTokens);
    const auto whole = Prefill(shape, world, all, {{0, kTokens}});
    for (const PromptSlice& slice : {PromptSlice{0, 70}, {61, 66}, {250, 20}, {505, 55}}) {
      const auto chunk =
          Prefill(shape, world, all.Part(shape, slice.first_position, slice.tokens), {slice});
      for (uint32_t t = 0; t < slice.tokens; ++t) {
        ASSERT_EQ(ActivationRow(chunk, t, inputs),
                  ActivationRow(whole, slice.first_position + t, inputs))
            << slice.first_position + t;
      }
    }
    for (uint32_t position : {0u, 63u, 64u, 255u, 256u, 300u, 511u, 512u, 559u}) {
      const auto one =
          Decode(shape, world, all.Part(shape, position, 1), {static_cast<int32_t>(position)});
      EXPECT_EQ(ActivationRow(one, 0, inputs), ActivationRow(whole, position, inputs)) << position;
    }
  }
}

// All of it kept, or a window as long as the text: bit for bit as without one.
TEST_P(GpuWindowTest, WhatSeesEverythingHasTheBitsOfNoWindow) {
  const Shape shape{64, 1, 2, GetParam()};
  const Queries queries(shape, 300), last(shape, 1);
  World whole(shape, {300});
  const auto prefilled = Prefill(shape, whole, queries, {{0, 300}});
  const auto decoded = Decode(shape, whole, last, {299});
  for (const Sight& sight : {Sight{10, 0, 0}, Sight{1, 10, 0}, Sight{1, 0, 1}}) {
    World world(shape, {300}, sight);
    EXPECT_EQ(Prefill(shape, world, queries, {{0, 300}}), prefilled);
    EXPECT_EQ(Decode(shape, world, last, {299}), decoded);
  }
}

TEST_P(GpuWindowTest, BitsAreTheSameInEverySchedule) {
  const Shape shape{64, 1, 16, GetParam()};
  const Sight sight{1, 1, 0};
  World world(shape, {330, 40}, sight);
  const Queries queries(shape, 2), prompt(shape, 40);
  const auto decoded = Decode(shape, world, queries, {329, 39});
  const auto prefilled = Prefill(shape, world, prompt, {{285, 40}});
  for (auto schedule : kSchedules) {
    const WithSchedule scope(schedule);
    EXPECT_EQ(Decode(shape, world, queries, {329, 39}), decoded);
    EXPECT_EQ(Prefill(shape, world, prompt, {{285, 40}}), prefilled);
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, GpuWindowTest,
                         ::testing::Values(KvElement::kBf16, KvElement::kInt8),
                         [](const auto& test) {
                           return test.param == KvElement::kInt8 ? "Int8" : "Bf16";
                         });

}  // namespace
}  // namespace baton::gpu
