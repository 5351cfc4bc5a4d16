// SPDX-License-Identifier: Apache-2.0
// The engine with real arithmetic: being put aside changes no token.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/load.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

class RealModel : public ::testing::Test {
 protected:
  static std::unique_ptr<Engine> Make(const Options& options, Listener* listener) {
    const auto checkpoint = checkpoint::OpenCheckpoint("embedded");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    model::LoadOptions load;
    load.threads = 1;
    auto model = model::LoadModel(**checkpoint, load);
    EXPECT_TRUE(model.ok()) << model.status();
    auto engine = Engine::Create(*std::move(model), options, listener, nullptr);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  // Greedy and seeded ones in turn.
  static std::vector<SequenceSpec> Specs() {
    std::mt19937 random(8);
    std::vector<SequenceSpec> specs;
    for (uint64_t key = 1; key <= 6; ++key) {
      std::vector<TokenId> prompt(5 + random() % 100);
      for (TokenId& token : prompt) token = 3 + random() % 600;
      specs.push_back(MakeSpec(key, std::move(prompt), 150));
      if (key % 2 == 0) specs.back().sampling = {.temperature = 0.9F, .seed = key};
    }
    return specs;
  }
};

TEST_F(RealModel, PutAsideAndTakenUpAgainItSaysTheSame) {
  const std::vector<SequenceSpec> specs = Specs();
  Recorder alone;
  Options roomy;
  roomy.kv_blocks = 100;
  const auto reference = Make(roomy, &alone);
  for (const SequenceSpec& spec : specs) {
    reference->Submit(spec);
    ASSERT_TRUE(alone.WaitForEnd(spec.ref));
  }
  for (const bool swap : {false, true}) {
    Recorder together;
    Options tight;
    tight.kv_blocks = 12;  // the longest needs 8
    tight.chunk_tokens = 32;
    tight.prefix_cache = swap;  // without, what is dropped is computed again
    tight.swap_bytes = swap ? uint64_t{64} << 20 : 0;
    const auto engine = Make(tight, &together);
    for (const SequenceSpec& spec : specs) engine->Submit(spec);
    for (const SequenceSpec& spec : specs) {
      ASSERT_TRUE(together.WaitForEnd(spec.ref));
      EXPECT_EQ(together.Of(spec.ref).tokens, alone.Of(spec.ref).tokens) << spec.ref.key;
    }
    EXPECT_GE(engine->load().preemptions, 2u);
    if (!swap) {
      EXPECT_GT(engine->load().recomputed_tokens, 0u);
    }
    ExpectIdle(*engine);
  }
  ExpectIdle(*reference);
}

TEST_F(RealModel, MovingItsBlocksChangesNoToken) {
  std::vector<SequenceSpec> specs;
  for (uint64_t round = 0; round < 6; ++round) {
    for (SequenceSpec spec : Specs()) {
      spec.ref.key += 100 * round;
      specs.push_back(std::move(spec));
    }
  }
  Options options;
  options.kv_blocks = 400;
  Recorder alone, moved;
  const auto reference = Make(options, &alone);
  const auto engine = Make(options, &moved);
  for (const SequenceSpec& spec : specs) engine->Submit(spec);
  uint32_t keep = 0;
  while (moved.ended() < specs.size()) {
    engine->Trim(keep = (keep + 29) % 150);
    absl::SleepFor(absl::Microseconds(200));
  }
  for (const SequenceSpec& spec : specs) {
    if (spec.ref.key > 100) continue;  // the others are the same again
    reference->Submit(spec);
    ASSERT_TRUE(alone.WaitForEnd(spec.ref));
  }
  for (const SequenceSpec& spec : specs) {
    EXPECT_EQ(moved.Of(spec.ref).tokens, alone.Of({1, spec.ref.key % 100}).tokens) << spec.ref.key;
  }
  EXPECT_GT(engine->load().blocks_moved, 8u);
  ExpectIdle(*engine);
  ExpectIdle(*reference);
}

}  // namespace
}  // namespace baton::engine
