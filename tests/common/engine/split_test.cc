// SPDX-License-Identifier: Apache-2.0
// A prefill and a decode engine together give what one engine gives alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;

Options PoolOf(uint32_t blocks) {
  Options options;
  options.kv_blocks = blocks;
  return options;
}

TEST(Split, GreedyTokensEqualTheReferenceAtEveryPromptLength) {
  const FakeOptions fake;
  Options prefill = PoolOf(64);
  prefill.chunk_tokens = 64;
  Pair pair(fake, prefill, PoolOf(64));
  std::mt19937 random(1);
  uint64_t key = 0;
  for (size_t length : {1, 31, 32, 33, 64, 65, 127, 128, 129, 300}) {
    const SequenceSpec spec = MakeSpec(++key, RandomPrompt(random, length, fake), 40);
    pair.Submit(spec);
    ASSERT_TRUE(pair.WaitForEnd(spec.ref));
    EXPECT_EQ(pair.Tokens(spec.ref), FakeReference(fake, spec.prompt, 40)) << length;
    EXPECT_TRUE(pair.prefill_heard.Of(spec.ref).end.handed_off);
  }
  pair.ExpectIdle();
}

}  // namespace
}  // namespace baton::engine
