// SPDX-License-Identifier: Apache-2.0
// One engine by itself.
#include "common/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;
using testing::HasSubstr;

Options SmallPool(uint32_t blocks = 64) {
  Options options;
  options.kv_blocks = blocks;
  return options;
}

// Submits, waits, and returns what was heard.
Heard RunAlone(Engine& engine, Recorder& recorder, const SequenceSpec& spec) {
  engine.Submit(spec);
  EXPECT_TRUE(recorder.WaitForEnd(spec.ref));
  return recorder.Of(spec.ref);
}

// Prompts around the borders of blocks and chunks.
TEST(Engine, GreedyTokensEqualTheReferenceAtEveryPromptLength) {
  const FakeOptions fake;
  Recorder recorder;
  Options options = SmallPool();
  options.chunk_tokens = 64;
  const auto engine = MakeEngine(fake, options, &recorder);
  std::mt19937 random(1);
  uint64_t key = 0;
  for (size_t length : {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200, 300}) {
    const auto prompt = RandomPrompt(random, length, fake);
    const Heard heard = RunAlone(*engine, recorder, MakeSpec(++key, prompt, 40));
    EXPECT_EQ(heard.tokens, FakeReference(fake, prompt, 40)) << length;
    EXPECT_EQ(heard.end.reason, FinishReason::kLength);
    EXPECT_TRUE(heard.start && heard.prefill_end && *heard.start <= *heard.prefill_end);
  }
  ExpectIdle(*engine);
}

}  // namespace
}  // namespace baton::engine
