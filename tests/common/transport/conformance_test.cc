// SPDX-License-Identifier: Apache-2.0
// What every transport must do when nothing fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/common/transport/transport_fixture.h"

namespace baton::transport {
namespace {

using Conformance = TransportTest;
using ::testing::HasSubstr;

TEST_P(Conformance, CommittedBlocksHoldTheSendersBytes) {
  Start();
  PromptKv prompt(layout_, 7, 1);
  Outcome granted, put, commit;
  const auto writer = Open(1, prompt.tokens(), granted.done());
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  const std::vector<CommitState::Candidate> candidates = {{4713, -0.5f, -1.5f}, {2, -2, -3}};
  writer->Commit({{4711, 4712}, 3, candidates, {{4714, 0, -4}}}, commit.done());

  EXPECT_EQ(granted.Wait(), absl::OkStatus());
  EXPECT_EQ(put.Wait(), absl::OkStatus());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
  EXPECT_EQ(landing_->state(1).first_tokens, (std::vector<TokenId>{4711, 4712}));
  EXPECT_EQ(landing_->state(1).beam_candidates, candidates);
  EXPECT_EQ(landing_->state(1).top, (std::vector<CommitState::Candidate>{{4714, 0, -4}}));
  EXPECT_EQ(landing_->state(1).drawn, 3u);
  EXPECT_EQ(landing_->aborted(), 0u);
  EXPECT_EQ(writer->transport(), GetParam());
  EXPECT_EQ(writer->bytes(), 7 * layout_.BlockBytes());
}

// A caller's callbacks may own the writer: kept, they would keep it for ever.
TEST_P(Conformance, CallbacksAreDestroyedOnceTheyHaveRun) {
  Start();
  const auto owned = std::make_shared<int>();
  for (const bool refused : {false, true}) {
    PromptKv prompt(layout_, 3, 1);
    Outcome commit;
    const auto writer = Open(refused, prompt.tokens(), [owned](const absl::Status&) {});
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), [owned](const absl::Status&) {});
    writer->Commit({}, [owned, done = commit.done()](const absl::Status& s) { done(s); });
    if (refused) writer->Abort(absl::CancelledError("given up"));
    // Given up, it may have been committed before.
    const absl::Status status = commit.Wait();
    if (!refused) {
      EXPECT_EQ(status, absl::OkStatus());
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(5);
    while (owned.use_count() > 1 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(owned.use_count(), 1) << (refused ? "refused" : "committed");
  }
}

TEST_P(Conformance, RandomLayoutsAndPutOrdersArriveExactly) {
  std::mt19937 random(7);
  const auto draw = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 8; ++round) {
    layout_.layers = draw(1, 9);
    layout_.kv_heads = draw(1, 4);
    layout_.head_dim = 16 * draw(1, 8);
    layout_.type = round % 2 == 0 ? kv::KvType::kF32 : kv::KvType::kBf16;
    sender_options_.ring_bytes = layout_.LayerBytes() * draw(1, 12);
    Start();
    PromptKv prompt(layout_, draw(1, 12), round);
    const auto writer = Open(round, prompt.tokens());
    // Rectangles that tile the prompt, in any order.
    std::vector<PutRange> ranges;
    const uint32_t layer_step = draw(1, layout_.layers), block_step = draw(1, prompt.count());
    for (uint32_t l = 0; l < layout_.layers; l += layer_step) {
      for (uint32_t b = 0; b < prompt.count(); b += block_step) {
        ranges.push_back({l, std::min(l + layer_step, layout_.layers), b,
                          std::min(b + block_step, prompt.count())});
      }
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    for (const PutRange& range : ranges) {
      writer->Put(range, prompt.Sources(range), [](const absl::Status&) {});
    }
    Outcome commit;
    writer->Commit({}, commit.done());
    EXPECT_EQ(commit.Wait(), absl::OkStatus());
    EXPECT_TRUE(prompt.Equals(landing_->blocks(1))) << "round " << round;
    sender_.reset();
    receiver_.reset();
  }
}

TEST_P(Conformance, ManyHandOffsAtOnceShareOneConnection) {
  Start();
  constexpr int kCount = 40;
  std::vector<PromptKv> prompts;
  std::vector<std::unique_ptr<KvWriter>> writers;
  std::vector<Outcome> commits(kCount);
  for (int i = 0; i < kCount; ++i) {
    prompts.emplace_back(layout_, 1 + i % 9, i);
    writers.push_back(Open(i, prompts[i].tokens()));
  }
  for (int layer = 0; layer < 5; ++layer) {
    for (int i = 0; i < kCount; ++i) {
      const PutRange range{static_cast<uint32_t>(layer), static_cast<uint32_t>(layer + 1), 0,
                           prompts[i].count()};
      writers[i]->Put(range, prompts[i].Sources(range), [](const absl::Status&) {});
    }
  }
  for (int i = 0; i < kCount; ++i) writers[i]->Commit({}, commits[i].done());

  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(commits[i].Wait(), absl::OkStatus());
    EXPECT_TRUE(prompts[i].Equals(landing_->blocks(landing_->id_of(Key(i))))) << i;
  }
}

TEST_P(Conformance, SourcesMayBeReusedAsSoonAsTheirPutIsDone) {
  Start();
  PromptKv prompt(layout_, 6, 3);
  std::vector<std::byte> staging(layout_.BlockBytes());
  const auto writer = Open(1, prompt.tokens());
  for (uint32_t b = 0; b < prompt.count(); ++b) {
    const PutRange range{0, layout_.layers, b, b + 1};
    std::vector<std::span<const std::byte>> sources;
    for (uint32_t l = 0; l < layout_.layers; ++l) {
      std::byte* to = staging.data() + l * layout_.LayerBytes();
      std::copy_n(prompt.slice(b, l), layout_.LayerBytes(), to);
      sources.emplace_back(to, layout_.LayerBytes());
    }
    Outcome put;
    writer->Put(range, std::move(sources), put.done());
    ASSERT_EQ(put.Wait(), absl::OkStatus());
    std::fill(staging.begin(), staging.end(), std::byte{0x55});
  }
  Outcome commit;
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
}

TEST_P(Conformance, CallsBeforeTheGrantWaitForItInOrder) {
  Start();
  landing_->Hold(true);
  PromptKv prompt(layout_, 2, 5);
  Outcome granted, put, commit;
  const auto writer = Open(1, prompt.tokens(), granted.done());
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  writer->Commit({}, commit.done());
  ASSERT_TRUE(landing_->WaitAsked(1));
  EXPECT_FALSE(put.Ready(absl::Milliseconds(20)));

  landing_->ReleaseHeld();

  EXPECT_EQ(granted.Wait(), absl::OkStatus());
  EXPECT_EQ(put.Wait(), absl::OkStatus());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
}

TEST_P(Conformance, CachedBlocksAreNotSent) {
  Start();
  landing_->SkipBlocks(3);
  PromptKv prompt(layout_, 5, 6);
  Outcome put, commit;
  const auto writer = Open(1, prompt.tokens());
  writer->Put({0, 5, 0, 2}, prompt.Sources({0, 5, 0, 2}), put.done());
  writer->Put({0, 5, 2, 5}, prompt.Sources({0, 5, 2, 5}), [](const absl::Status&) {});
  writer->Commit({}, commit.done());

  EXPECT_EQ(put.Wait(), absl::OkStatus());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_EQ(writer->bytes(), 2 * layout_.BlockBytes());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1), 3));
}

TEST_P(Conformance, FullyCachedPromptCommitsWithoutAByte) {
  Start();
  landing_->SkipBlocks(2);
  PromptKv prompt(layout_, 2, 6);
  EXPECT_EQ(HandOver(1, prompt), absl::OkStatus());
}

// Of a prompt of 20 blocks four move, as both ends know.
TEST_P(Conformance, BlocksThatNobodySeesDoNotMove) {
  Start();
  PromptKv moving(layout_, 4, 7);
  Outcome put, commit;
  const auto writer = sender_->Open(receiver_->endpoints(), {Key(1), 20 * 32, 4},
                                    absl::InfiniteFuture(), [](const absl::Status&) {});
  writer->Put(moving.all(), moving.Sources(moving.all()), put.done());
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_EQ(writer->bytes(), 4 * layout_.BlockBytes());
  EXPECT_TRUE(moving.Equals(landing_->blocks(1)));
}

TEST_P(Conformance, EndsThatDisagreeOnWhatMovesAreTold) {
  Start();
  landing_->TakeWholePrompts();
  Outcome granted;
  const auto writer = sender_->Open(receiver_->endpoints(), {Key(1), 20 * 32, 4},
                                    absl::InfiniteFuture(), granted.done());
  const absl::Status status = granted.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("20 blocks for a hand-off of 4"));
  EXPECT_TRUE(landing_->WaitAborted(1));
}

TEST_P(Conformance, SlicePutTwiceWithTheSameBytesCountsOnce) {
  Start();
  PromptKv prompt(layout_, 2, 8);
  const auto writer = Open(1, prompt.tokens());
  Outcome commit;
  for (int i = 0; i < 2; ++i) {
    writer->Put(prompt.all(), prompt.Sources(prompt.all()), [](const absl::Status&) {});
  }
  writer->Commit({}, commit.done());
  EXPECT_EQ(commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(prompt.Equals(landing_->blocks(1)));
}

TEST_P(Conformance, SmallHandOffDoesNotWaitForABigOne) {
  UseLargeBlocks();
  sender_options_.ring_bytes = 1 << 20;
  Start();
  PromptKv big(layout_, 64, 1), small(layout_, 1, 2);
  Outcome big_commit, small_commit;
  const auto big_writer = Open(1, big.tokens());
  const auto small_writer = Open(2, small.tokens());
  ASSERT_TRUE(landing_->WaitGranted(2));
  big_writer->Put(big.all(), big.Sources(big.all()), [](const absl::Status&) {});
  big_writer->Commit({}, big_commit.done());
  small_writer->Put(small.all(), small.Sources(small.all()), [](const absl::Status&) {});
  small_writer->Commit({}, small_commit.done());

  EXPECT_EQ(small_commit.Wait(), absl::OkStatus());
  EXPECT_FALSE(big_commit.Ready());
  EXPECT_EQ(big_commit.Wait(), absl::OkStatus());
  EXPECT_TRUE(big.Equals(landing_->blocks(landing_->id_of(Key(1)))));
  EXPECT_TRUE(small.Equals(landing_->blocks(landing_->id_of(Key(2)))));
}

TEST_P(Conformance, RefusalOfTheLandingReachesTheWriter) {
  Start();
  landing_->Refuse(absl::NotFoundError("unknown hand-off"));
  PromptKv prompt(layout_, 1, 1);
  Outcome granted, put, commit;
  const auto writer = Open(1, prompt.tokens(), granted.done());
  writer->Put(prompt.all(), prompt.Sources(prompt.all()), put.done());
  writer->Commit({}, commit.done());
  for (Outcome* outcome : {&granted, &put, &commit}) {
    EXPECT_EQ(outcome->Wait(), absl::NotFoundError("unknown hand-off"));
  }
}

TEST_P(Conformance, CommitHearsWhatTheLandingAnswers) {
  Start();
  landing_->RefuseCommits(absl::ResourceExhaustedError("no slot"));
  PromptKv prompt(layout_, 1, 1);
  EXPECT_EQ(HandOver(1, prompt), absl::ResourceExhaustedError("no slot"));
  EXPECT_EQ(landing_->aborted(), 0u) << "the landing has it already";
}

BATON_ALL_TRANSPORTS(Conformance);

}  // namespace
}  // namespace baton::transport
