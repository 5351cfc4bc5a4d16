// SPDX-License-Identifier: Apache-2.0
// Order, blocks and seats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;
using ::testing::ElementsAre;

TEST(Admission, NoMoreThanMaxSequencesRunAtOnce) {
  Recorder recorder;
  Gate gate;
  Options options = PoolOf(64);
  options.max_sequences = 3;
  const auto engine = MakeEngine({}, options, &recorder, nullptr, &gate);
  gate.Close();
  engine->Submit(MakeSpec(1, {1}, 30));
  ASSERT_TRUE(gate.WaitForStep());
  for (uint64_t key = 2; key <= 10; ++key) engine->Submit(MakeSpec(key, {1}, 30));
  gate.Open();
  uint32_t most = 0;
  while (recorder.ended() < 10) {
    most = std::max(most, engine->load().running_sequences);
    absl::SleepFor(absl::Microseconds(50));
  }
  EXPECT_LE(most, 3u);
  ExpectIdle(*engine);
}

// One seat, taken by a sequence that runs until it is cancelled.
class AdmissionOrder : public ::testing::Test {
 protected:
  void Start(absl::Duration aging) {
    Options options = PoolOf(300);
    options.max_sequences = 1;
    options.policy.aging = aging;
    engine_ = MakeEngine({.delay_per_step = absl::Microseconds(200)}, options, &recorder_);
    engine_->Submit(MakeSpec(1000, {1}, 8000));
    ASSERT_TRUE(recorder_.WaitForTokens({1, 1000}, 1));
  }
  void TearDown() override { ExpectIdle(*engine_); }

  void Queue(uint64_t key, size_t prompt) {
    engine_->Submit(MakeSpec(key, std::vector<TokenId>(prompt, 1), 1));
    ++queued_;
    ASSERT_TRUE(Eventually([&] { return engine_->load().waiting_sequences == queued_; }));
  }

  // Frees the seat; the keys in the order in which they started.
  std::vector<uint64_t> Order() {
    engine_->Cancel({1, 1000}, absl::CancelledError("leave the seat"));
    std::vector<std::pair<absl::Time, uint64_t>> starts;
    for (uint64_t key = 1; key <= queued_; ++key) {
      EXPECT_TRUE(recorder_.WaitForEnd({1, key}));
      starts.emplace_back(*recorder_.Of({1, key}).start, key);
    }
    std::sort(starts.begin(), starts.end());
    std::vector<uint64_t> keys;
    for (const auto& [unused, key] : starts) keys.push_back(key);
    return keys;
  }

  Recorder recorder_;
  std::unique_ptr<Engine> engine_;
  uint32_t queued_ = 0;
};

TEST_F(AdmissionOrder, ShortestPromptFirstAndEqualOnesByArrival) {
  Start(absl::Seconds(60));
  // Due half a second apart at least, more than it takes to queue them.
  Queue(1, 1000);
  Queue(2, 200);
  Queue(3, 3000);
  Queue(4, 200);
  Queue(5, 50);
  EXPECT_THAT(Order(), ElementsAre(5, 2, 4, 1, 3));
}

TEST_F(AdmissionOrder, PromptThatHasAgedGoesFirst) {
  Start(absl::Milliseconds(100));
  Queue(1, 500);
  absl::SleepFor(absl::Milliseconds(120));
  Queue(2, 10);
  Queue(3, 5);
  EXPECT_THAT(Order(), ElementsAre(1, 3, 2));
}

// Short prompts without end, and one long one among them.
TEST(Admission, LongPromptIsNotStarved) {
  const FakeOptions fake{.delay_per_step = absl::Microseconds(300)};
  Recorder recorder;
  Options options = PoolOf(64);
  options.chunk_tokens = 32;
  options.max_sequences = 4;
  options.policy.aging = absl::Milliseconds(100);
  const auto engine = MakeEngine(fake, options, &recorder);
  uint64_t key = 0;
  const auto feed = [&] {
    while (engine->load().waiting_sequences < 20) {
      engine->Submit(MakeSpec(++key, std::vector<TokenId>(10, 1), 3));
      absl::SleepFor(absl::Microseconds(50));
    }
  };
  feed();
  const SequenceSpec big = MakeSpec(1u << 30, std::vector<TokenId>(600, 2), 2);
  engine->Submit(big);
  const absl::Time submitted = absl::Now();
  while (recorder.Of(big.ref).ends == 0 && absl::Now() < submitted + absl::Seconds(10)) feed();
  ASSERT_EQ(recorder.Of(big.ref).ends, 1u);
  EXPECT_EQ(recorder.Of(big.ref).tokens, FakeReference(fake, big.prompt, 2));
  engine->CancelOwner(1, absl::CancelledError("end of the test"));
  ExpectIdle(*engine);
}

// A hand-off that waits for blocks and local prompts that do: each gets its
// turn, whoever came first.
TEST(Admission, HandoffsAndLocalPromptsDoNotBlockEachOther) {
  const FakeOptions fake;
  Options decode = PoolOf(9);
  decode.max_sequences = 3;
  Pair pair(fake, PoolOf(40), decode);
  std::mt19937 random(6);
  std::vector<SequenceSpec> specs;
  for (uint64_t key = 1; key <= 40; ++key) {
    specs.push_back(MakeSpec(key, RandomPrompt(random, 1 + random() % 150, fake),
                             1 + static_cast<uint32_t>(random() % 100)));
    if (key % 2 == 0) {
      pair.Submit(specs.back());
    } else {
      pair.decode->Submit(specs.back());
    }
  }
  for (const SequenceSpec& spec : specs) {
    const bool split = spec.ref.key % 2 == 0;
    ASSERT_TRUE(split ? pair.WaitForEnd(spec.ref) : pair.decode_heard.WaitForEnd(spec.ref));
    const auto tokens = split ? pair.Tokens(spec.ref) : pair.decode_heard.Of(spec.ref).tokens;
    EXPECT_EQ(tokens, FakeReference(fake, spec.prompt, spec.max_tokens)) << spec.ref.key;
  }
  pair.ExpectIdle();
}

}  // namespace
}  // namespace baton::engine
