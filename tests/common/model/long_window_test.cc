// SPDX-License-Identifier: Apache-2.0
// Far beyond a model's context in a handful of blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/common/model/masked_reference.h"
#include "tests/common/model/windowed_sequence.h"
#include "tests/testing/test_data.h"

namespace baton::model {
namespace {

// 20,000 greedy tokens in six blocks, each the masked reference's choice.
TEST(LongWindow, TwentyThousandTokensInSixBlocks) {
  const std::string model = testing::SharedData("models/stories260k/hf");
  BATON_NEED_DATA(model);
  constexpr uint32_t kTokens = 20'000;
  // Between logits nearer than this the order of float32 sums decides.
  constexpr double kTie = 2e-3;
  const kv::Window window{128, 32};
  const auto checkpoint = checkpoint::OpenCheckpoint(model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ModelRunner runner(model, LongContext("auto", Precision::kExact, kv::KvType::kF32), 6);
  ASSERT_TRUE(runner.ok());
  ASSERT_EQ(kv::BlocksForWindow(window, 1), 6u);
  MaskedReference reference(**checkpoint, {.window = window.tokens, .sinks = window.sinks});
  WindowedSequence sequence(runner, window, 1, kTokens);
  TokenId token = 1;  // begin of text
  uint32_t ties = 0;
  for (uint32_t i = 0; i < kTokens; ++i) {
    const TokenId next = Argmax(sequence.Feed({&token, 1}));
    const std::vector<double> expected = reference.Next(token);
    const auto best = std::max_element(expected.begin(), expected.end());
    if (expected.begin() + next != best) {
      ASSERT_LT(*best - expected[next], kTie) << "position " << i;
      ++ties;
    }
    token = next;
  }
  std::printf("%u tokens, %u of them ties\n", kTokens, ties);
  EXPECT_LE(ties, 5u);
}

}  // namespace
}  // namespace baton::model
