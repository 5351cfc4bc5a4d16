// SPDX-License-Identifier: Apache-2.0
// The router counts blocks of windowed requests as the engine of a decode worker does,
// and starts what fits only for its window.
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "router/pairing.h"
#include "tests/common/engine/harness.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

const kv::Window kWindows[] = {
    {},
    {.tokens = 64},
    {.tokens = 96, .sinks = 32},
    {.tokens = 32, .sinks = 64, .stride = 128},
    {.tokens = 64, .stride = 64, .keep = {{{96, 160}, {320, 352}}}},
};

Worker WorkerWithBlocksOf32() {
  Worker worker;
  worker.load.set_kv_block_tokens(kv::kBlockTokens);
  return worker;
}

struct CountCase {
  Need need;
  PromptKv prompt = PromptKv::kComputed;
  engine::SequenceSpec spec;

  std::string Name() const {
    return absl::StrCat("prompt ", need.prompt_tokens, " output ", need.max_tokens, " width ",
                        need.width, " window ", need.window.tokens, " stride ", need.window.stride,
                        prompt == PromptKv::kComputed ? " computed" : " handed over");
  }
};

CountCase RandomCountCase(std::mt19937& random) {
  CountCase chosen;
  Need& need = chosen.need;
  need.prompt_tokens = 1 + random() % 900;
  need.max_tokens = random() % 4 == 0 ? 1 + random() % 3 : 1 + random() % 600;
  need.window = kWindows[random() % std::size(kWindows)];
  need.width = random() % 3 == 0 ? 2 + random() % 3 : 1;
  const bool computed = random() % 2 == 0;
  chosen.prompt = computed ? PromptKv::kComputed : PromptKv::kHandedOver;
  chosen.spec = engine::MakeSpec(1, engine::RandomPrompt(random, need.prompt_tokens, {}),
                                 static_cast<uint32_t>(need.max_tokens),
                                 computed ? engine::Role::kWhole : engine::Role::kDecode);
  chosen.spec.window = need.window;
  chosen.spec.choices = need.width;
  return chosen;
}

TEST(WindowCount, OfAStartIsWhatTheEngineAsksOfItsPool) {
  constexpr uint32_t kBlocks = 200;
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    CountCase chosen = RandomCountCase(random);
    engine::Recorder recorder;
    const auto engine = engine::MakeEngine({.delay_per_step = absl::Milliseconds(5)},
                                           engine::PoolOf(kBlocks), &recorder);
    if (chosen.prompt == PromptKv::kComputed) {
      // Runs in all of the pool, so that the other waits for its blocks.
      engine->Submit(engine::MakeSpec(2, engine::RandomPrompt(random, kBlocks * 32 - 33, {}), 30));
      ASSERT_TRUE(engine::Eventually([&] { return engine->load().kv_blocks_requests > 100; }));
    }
    engine->Submit(chosen.spec);
    ASSERT_TRUE(engine::Eventually([&] { return engine->load().promised_blocks > 0; }));
    EXPECT_EQ(BlocksToCount(WorkerWithBlocksOf32(), chosen.need, chosen.prompt),
              engine->load().promised_blocks)
        << chosen.Name();
  }
}

TEST(WindowCount, OfTheMostIsWhatTheEngineRefusesBeyond) {
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) {
    CountCase chosen = RandomCountCase(random);
    chosen.need.search = true;  // all that it may ever take
    const uint64_t most = BlocksToCount(WorkerWithBlocksOf32(), chosen.need, chosen.prompt);
    const auto refused = [&](uint64_t blocks) {
      engine::Recorder recorder;
      const auto pool = engine::PoolOf(static_cast<uint32_t>(blocks));
      const auto engine = engine::MakeEngine({}, pool, &recorder);
      engine->Submit(chosen.spec);
      engine::Eventually([&] {
        return recorder.ended() > 0 || engine->load().promised_blocks > 0 ||
               engine->load().kv_blocks_requests > 0;
      });
      return absl::IsResourceExhausted(recorder.Of(chosen.spec.ref).end.status);
    };
    EXPECT_FALSE(refused(most)) << chosen.Name();
    if (most > 1) {
      EXPECT_TRUE(refused(most - 1)) << chosen.Name();
    }
  }
}

using Outcome = Pairing::Outcome;

// Workers whose blocks have 10 tokens.
class WindowedPairing : public ::testing::Test {
 protected:
  Worker& Add(const std::string& id, v1::WorkerRole role, uint32_t blocks) {
    const LinkId link = ++last_;
    directory_.Open(link, std::make_shared<FakeLink>(), absl::UnixEpoch());
    Worker& worker = *directory_.Find(link);
    EXPECT_TRUE(directory_.Attach(worker, MakeHello(id, role, blocks).hello()).ok());
    return worker;
  }
  WorkerDirectory directory_;
  LinkId last_ = 0;
};

TEST_F(WindowedPairing, WindowLetsAPromptThatIsHandedOverOutgrowThePool) {
  Worker& p = Add("p", v1::WORKER_ROLE_PREFILL, 100);
  Worker& d = Add("d", v1::WORKER_ROLE_DECODE, 15);  // 150 tokens
  Need need{500, 1000};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kImpossible);
  need.window = {.tokens = 64, .sinks = 32};
  for (const v1::Path path : {v1::PATH_UNSPECIFIED, v1::PATH_SPLIT}) {
    need.path = path;
    const Pairing pairing = ChoosePair(directory_.Attached(), need);
    EXPECT_EQ(pairing.outcome, Outcome::kRun);
    EXPECT_EQ(pairing.prefill, &p);
    EXPECT_EQ(pairing.decode, &d);
    EXPECT_EQ(pairing.reason, path == v1::PATH_SPLIT ? "requested" : "prompt_exceeds_decode_pool");
  }
  need.path = v1::PATH_LOCAL;  // there the prompt has blocks for all of it
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kImpossible);
  need.path = v1::PATH_UNSPECIFIED;
  p.draining = true;
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kMissing) << "one may come";
  p.draining = false;
  need.window = {.tokens = 96, .sinks = 32};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kImpossible);
  need.window = {.tokens = 32, .sinks = 32, .stride = 512};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kImpossible)
      << "strides have kept two more";
  need.max_tokens = 500;
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kRun);
}

TEST_F(WindowedPairing, WindowedPromptCountsAsWhatIsInSightBehindIt) {
  Add("p", v1::WORKER_ROLE_PREFILL, 100);
  Worker& d = Add("d", v1::WORKER_ROLE_DECODE, 100);
  v1::Heartbeat beat;
  beat.set_kv_credit_blocks(13);  // 130 tokens
  directory_.Heartbeat(d, beat);
  // Position 500 is in block 15 of 32 tokens: it sees blocks 0, 13 and 14, and of
  // its own 21 positions.
  Need need{.prompt_tokens = 500, .max_tokens = 100, .window = {.tokens = 64, .sinks = 32}};
  EXPECT_EQ(BlocksToCount(d, need, PromptKv::kHandedOver), 12u);
  EXPECT_EQ(BlocksToCount(d, need, PromptKv::kComputed), 51u);
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kRun);
  need.path = v1::PATH_LOCAL;
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kBusy);
  need.path = v1::PATH_SPLIT;
  const SequenceKey key = directory_.Assign(d, 1, 20, 0);
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kBusy);
  directory_.Release(key);
  need.window = {};
  EXPECT_EQ(ChoosePair(directory_.Attached(), need).outcome, Outcome::kBusy);
}

}  // namespace
}  // namespace baton::router
