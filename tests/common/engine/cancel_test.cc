// SPDX-License-Identifier: Apache-2.0
// Cancellation and deadlines in every state: one end each, and nothing held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using absl::StatusCode;
using model::FakeOptions;
using model::FakeReference;

const absl::Status kLeft = absl::CancelledError("the client left");

void ExpectCancelled(Recorder& recorder, SequenceRef ref) {
  ASSERT_TRUE(recorder.WaitForEnd(ref));
  EXPECT_EQ(recorder.Of(ref).ends, 1u);
  EXPECT_EQ(recorder.Of(ref).end.status, kLeft);
  EXPECT_EQ(recorder.Of(ref).end.reason, FinishReason::kNone);
}

TEST(Cancel, QueuedSequenceNeverStarts) {
  Recorder recorder;
  Gate gate;
  Options options = PoolOf(64);
  options.max_sequences = 1;
  const auto engine = MakeEngine({}, options, &recorder, nullptr, &gate);
  gate.Close();
  engine->Submit(MakeSpec(1, {1}, 3));
  ASSERT_TRUE(gate.WaitForStep());
  engine->Submit(MakeSpec(2, {1}, 3));
  engine->Cancel({1, 2}, kLeft);
  engine->Cancel({1, 2}, absl::InternalError("the first reason counts"));
  gate.Open();
  ExpectCancelled(recorder, {1, 2});
  EXPECT_FALSE(recorder.Of({1, 2}).start);
  ASSERT_TRUE(recorder.WaitForEnd({1, 1}));
  EXPECT_TRUE(recorder.Of({1, 1}).end.status.ok());
  ExpectIdle(*engine);
}

TEST(Cancel, StopsBetweenChunksAndBetweenTokens) {
  Recorder recorder;
  Options options = PoolOf(300);
  options.chunk_tokens = 32;
  const auto engine = MakeEngine({.delay_per_step = absl::Milliseconds(2)}, options, &recorder);
  engine->Submit(MakeSpec(1, std::vector<TokenId>(4000, 1), 100));
  ASSERT_TRUE(Eventually([&] { return engine->load().prompt_tokens_computed > 0; }));
  engine->Cancel({1, 1}, kLeft);
  ExpectCancelled(recorder, {1, 1});
  EXPECT_TRUE(recorder.Of({1, 1}).tokens.empty());
  EXPECT_LT(engine->load().prompt_tokens_computed, 3000u);

  engine->Submit(MakeSpec(2, {1}, 4000));
  ASSERT_TRUE(recorder.WaitForTokens({1, 2}, 3));
  engine->Cancel({1, 2}, kLeft);
  ExpectCancelled(recorder, {1, 2});
  EXPECT_LT(recorder.Of({1, 2}).tokens.size(), 1000u);
  ExpectIdle(*engine);
}

TEST(Cancel, OfAnOwnerLeavesOthersAlone) {
  const FakeOptions fake;
  Recorder recorder;
  const auto engine = MakeEngine(fake, PoolOf(300), &recorder);
  for (uint64_t key = 1; key <= 10; ++key) {
    SequenceSpec spec = MakeSpec(key, {1, static_cast<TokenId>(key)}, 150);
    spec.ref.owner = key % 2;
    engine->Submit(spec);
  }
  SequenceSpec expected = MakeSpec(11, {1}, 5, Role::kDecode);
  engine->Submit(expected);
  engine->CancelOwner(1, kLeft);
  for (uint64_t key = 1; key <= 10; ++key) {
    if (key % 2 == 1) {
      ExpectCancelled(recorder, {1, key});
    } else {
      ASSERT_TRUE(recorder.WaitForEnd({0, key}));
      EXPECT_EQ(recorder.Of({0, key}).tokens,
                FakeReference(fake, std::vector<TokenId>{1, static_cast<TokenId>(key)}, 150));
    }
  }
  ExpectCancelled(recorder, expected.ref);
  ExpectIdle(*engine);
}

TEST(Cancel, OfWhatIsNotThereHasNoEffect) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(8), &recorder);
  engine->Cancel({1, 1}, kLeft);
  engine->CancelOwner(9, kLeft);
  engine->Submit(MakeSpec(1, {1}, 2));
  ASSERT_TRUE(recorder.WaitForEnd({1, 1}));
  engine->Cancel({1, 1}, kLeft);
  ExpectIdle(*engine);
  EXPECT_EQ(recorder.Of({1, 1}).ends, 1u);
  EXPECT_TRUE(recorder.Of({1, 1}).end.status.ok());
}

// No new traffic after it: the load must still fall to zero.
TEST(Cancel, OfEverythingShowsInTheLoadAtOnce) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(64), &recorder);
  for (uint64_t key = 1; key <= 100; ++key) {
    engine->Submit(MakeSpec(key, std::vector<TokenId>(100, 1), 300));
  }
  ASSERT_TRUE(Eventually([&] { return engine->load().waiting_sequences > 50; }));
  const absl::Time start = absl::Now();
  engine->CancelOwner(1, kLeft);
  ExpectIdle(*engine);
  EXPECT_LT(absl::Now() - start, absl::Seconds(BATON_SANITIZED ? 5 : 1));
  EXPECT_EQ(recorder.ended(), 100u);
}

// Pinned blocks of a cancelled hand-off are not given to the next request
// while the sender still reads them.
TEST(Cancel, InHandoffKeepsTheBlocksUntilTheSenderLetsGo) {
  const FakeOptions fake;
  Pair pair(fake, PoolOf(6), PoolOf(64));
  pair.sender.SetFrozen(true);
  const SequenceSpec first = MakeSpec(1, std::vector<TokenId>(150, 1), 10);  // 5 blocks
  pair.Submit(first);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().commits == 1; }));
  pair.prefill->Cancel(first.ref, kLeft);
  const SequenceSpec second = MakeSpec(2, std::vector<TokenId>(160, 2), 10);
  pair.Submit(second);
  EXPECT_FALSE(pair.prefill_heard.WaitForEnd(first.ref, absl::Milliseconds(20)));
  EXPECT_EQ(pair.prefill->load().kv_blocks_transfers, 5u);
  EXPECT_EQ(pair.prefill->load().kv_blocks_free, 1u);
  EXPECT_FALSE(pair.prefill_heard.Of(second.ref).start);
  pair.sender.SetFrozen(false);
  ASSERT_TRUE(pair.prefill_heard.WaitForEnd(first.ref));
  EXPECT_EQ(pair.prefill_heard.Of(first.ref).end.status, kLeft);
  ASSERT_TRUE(pair.WaitForEnd(second.ref));
  EXPECT_EQ(pair.Tokens(second.ref), FakeReference(fake, second.prompt, 10));
  pair.decode->Cancel(first.ref, kLeft);
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(first.ref));
  pair.ExpectIdle();
}

TEST(Cancel, BetweenChunksOfAHandoffFreesWhatWasNotSent) {
  Options prefill = PoolOf(200);
  prefill.chunk_tokens = 32;
  Pair pair({.delay_per_step = absl::Milliseconds(2)}, prefill, PoolOf(200));
  pair.sender.SetFrozen(true);
  const SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(4000, 1), 10);  // 125 blocks
  pair.Submit(spec);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().blocks >= 3; }));
  pair.prefill->Cancel(spec.ref, kLeft);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().aborts == 1; }));
  const uint32_t sent = pair.sender.calls().blocks;
  EXPECT_LT(sent, 125u);
  ASSERT_TRUE(Eventually([&] { return pair.prefill->load().kv_blocks_free == 200 - sent; }));
  EXPECT_EQ(pair.prefill->load().kv_blocks_transfers, sent);
  pair.sender.SetFrozen(false);
  ASSERT_TRUE(pair.WaitForEnd(spec.ref));
  pair.ExpectIdle();
}

TEST(Deadline, PassesWhileQueuedComputingAndDecoding) {
  Recorder recorder;
  Options options = PoolOf(300);
  options.max_sequences = 2;
  options.chunk_tokens = 32;
  const auto engine = MakeEngine({.delay_per_step = absl::Milliseconds(5)}, options, &recorder);
  const auto submit = [&](uint64_t key, size_t prompt, uint32_t max_tokens) {
    SequenceSpec spec = MakeSpec(key, std::vector<TokenId>(prompt, 1), max_tokens);
    // The first one goes last: until then the third has no seat.
    spec.deadline =
        absl::Now() + (BATON_SANITIZED ? 4 : 1) * absl::Milliseconds(key == 1 ? 250 : 100);
    engine->Submit(spec);
  };
  submit(1, 1, 4000);
  ASSERT_TRUE(recorder.WaitForTokens({1, 1}, 1));
  submit(2, 4000, 10);
  submit(3, 4000, 10);
  for (uint64_t key : {1, 2, 3}) {
    ASSERT_TRUE(recorder.WaitForEnd({1, key}));
    EXPECT_EQ(recorder.Of({1, key}).end.status.code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(recorder.Of({1, 2}).start);
  EXPECT_FALSE(recorder.Of({1, 3}).start);
  ExpectIdle(*engine);
}

TEST(Deadline, ThatIsOverEndsTheSequenceBeforeItStarts) {
  Recorder recorder;
  const auto engine = MakeEngine({}, PoolOf(8), &recorder);
  SequenceSpec spec = MakeSpec(1, {1}, 5);
  spec.deadline = absl::Now() - absl::Seconds(1);
  engine->Submit(spec);
  ASSERT_TRUE(recorder.WaitForEnd(spec.ref));
  EXPECT_EQ(recorder.Of(spec.ref).end.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(recorder.Of(spec.ref).start);
  ExpectIdle(*engine);
}

TEST(Deadline, PassesDuringAStuckHandoff) {
  Pair pair({}, PoolOf(16), PoolOf(16));
  pair.sender.SetFrozen(true);
  SequenceSpec spec = MakeSpec(1, std::vector<TokenId>(50, 1), 10);
  spec.deadline = absl::Now() + absl::Milliseconds(50);
  pair.Submit(spec);
  ASSERT_TRUE(Eventually([&] { return pair.sender.calls().aborts == 1; }));
  pair.sender.SetFrozen(false);
  ASSERT_TRUE(pair.prefill_heard.WaitForEnd(spec.ref));
  ASSERT_TRUE(pair.decode_heard.WaitForEnd(spec.ref));
  EXPECT_EQ(pair.prefill_heard.Of(spec.ref).end.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pair.decode_heard.Of(spec.ref).end.status.code(), StatusCode::kDeadlineExceeded);
  pair.ExpectIdle();
}

}  // namespace
}  // namespace baton::engine
