// SPDX-License-Identifier: Apache-2.0
// What ends an answer, and its text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

TEST_F(DispatcherTest, FirstTokenThatIsTheStopHasNoTextAndItsLogprobs) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stops = {"\n"};
  request.sampling.set_logprobs(10);
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  Step first;
  first.Tokens(key, 0, {'\n'});
  first.last().add_logprobs()->set_logprob(-0.5);
  Say(kD, first);
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "");
  EXPECT_EQ(client->ids.size(), 1u);
  EXPECT_EQ(client->logprobs, 1);
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP_TEXT);
}

TEST_F(DispatcherTest, StopSequenceEndsTheStreamAndIsNamed) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stop_sequences = {{'b', 'c'}};
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'a', 'b'}));
  EXPECT_EQ(client->text, "a");
  Say(kD, Step().Tokens(key, 2, {'c', 'd'}));
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "a");
  EXPECT_EQ(client->ids.size(), 3u);
  const v1::Finished& finished = client->finished[0];
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_STOP_SEQUENCE);
  ASSERT_EQ(finished.matched_token_ids_size(), 2);
  EXPECT_EQ(finished.matched_token_ids(1), uint32_t{'c'});
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{key});
}

TEST_F(DispatcherTest, StopTokenHasNoTextUnlessAskedForAndIsNamed) {
  const auto d = AttachDecode();
  for (bool include : {false, true}) {
    ValidatedRequest request = Request(v1::PATH_LOCAL);
    request.stop_tokens = {'!'};
    request.include_stop = include;
    const auto client = Submit(request);
    const uint64_t key = d->assigns.back().sequence_key();
    Say(kD, Step().Tokens(key, 0, {'a', '!'}).End(key, v1::FINISH_REASON_STOP));
    EXPECT_EQ(client->text, include ? "a!" : "a");
    ASSERT_EQ(client->finished.size(), 1u);
    ASSERT_EQ(client->finished[0].matched_token_ids_size(), 1);
    EXPECT_EQ(client->finished[0].matched_token_ids(0), uint32_t{'!'});
  }
}

TEST_F(DispatcherTest, TheFullContextIsAReasonOfItsOwn) {
  const auto d = AttachDecode();
  for (bool asked : {false, true}) {
    ValidatedRequest request = Request(v1::PATH_LOCAL);
    request.ends_at_context = !asked;
    const auto client = Submit(request);
    const uint64_t key = d->assigns.back().sequence_key();
    Say(kD, Step().Tokens(key, 0, {'a'}).End(key, v1::FINISH_REASON_LENGTH));
    ASSERT_EQ(client->finished.size(), 1u);
    EXPECT_EQ(client->finished[0].reason(),
              asked ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_CONTEXT);
  }
}

TEST_F(DispatcherTest, TimeLimitEndsWithWhatThereIs) {
  const auto d = AttachDecode();
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.time_limit = absl::Seconds(2);
  const auto client = Submit(request);
  const auto waiting = Submit(request);  // no token comes
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'a', 'b'}));
  Advance(absl::Milliseconds(1900));
  EXPECT_FALSE(client->ended());
  Advance(absl::Milliseconds(200));
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "ab");
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_TIME);
  EXPECT_EQ(waiting->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(d->cancels.size(), 2u);
}

TEST_F(DispatcherTest, StopTextEndsTheStreamCancelsTheWorkerAndCountsItsTokens) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stops = {"DEFGHIJ"};
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  const TokenId piece = FakeTokenizer::kPieces;  // DEF G HI J KLM
  Say(kD, Step().Tokens(key, 0, {'x', piece}));
  Say(kD, Step().Tokens(key, 2, {piece + 1, piece + 2}));
  EXPECT_EQ(client->text, "x");
  Say(kD, Step().Tokens(key, 4, {piece + 3, piece + 4}));  // one more in the same step
  EXPECT_TRUE(client->status().ok());
  EXPECT_EQ(client->text, "x");
  EXPECT_EQ(client->ids.size(), 5u);
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(client->finished[0].matched_stop(), "DEFGHIJ");
  EXPECT_EQ(client->finished[0].usage().completion_tokens(), 5u);
  EXPECT_EQ(d->cancels, std::vector<uint64_t>{key});
  Say(kD, Step().Tokens(key, 6, {'y'}).End(key, v1::FINISH_REASON_LENGTH));  // late, dropped
  EXPECT_EQ(client->statuses.size(), 1u);
}

TEST_F(DispatcherTest, HeldTextIsFlushedWhenTheAnswerEndsOtherwise) {
  ValidatedRequest request = Request(v1::PATH_LOCAL);
  request.stops = {"as|"};
  const auto d = AttachDecode();
  const auto client = Submit(request);
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'p', 'a', 's', FakeTokenizer::kEnd}));
  EXPECT_EQ(client->text, "p");
  Say(kD, Step().End(key, v1::FINISH_REASON_STOP));
  EXPECT_EQ(client->text, "pas");
  EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP);
}

TEST_F(DispatcherTest, WithoutATokenizerIdsAloneAreSent) {
  model_ = MakeIdsModel();
  const auto d = AttachDecode();
  const auto client = Submit(Request(v1::PATH_LOCAL));
  const uint64_t key = d->assigns[0].sequence_key();
  Say(kD, Step().Tokens(key, 0, {'A', 300}).End(key, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(client->ids, (std::vector<uint32_t>{'A', 300}));
  EXPECT_EQ(client->text, "");
  EXPECT_TRUE(client->status().ok());
}

TEST_F(DispatcherTest, AChoiceThatAStopTextEndsIsCalledOffOnTheDecodeWorkerAlone) {
  ValidatedRequest request = Request(v1::PATH_SPLIT);
  request.choices = request.choices_made = request.width = 2;
  request.decoding.set_n(2);
  request.stops = {"G"};
  const Split s = StartSplit(request);
  EXPECT_EQ(s.d->assigns[0].decoding().n(), 2u);
  EXPECT_EQ(s.p->assigns[0].decoding().n(), 2u);
  Step first;
  first.Tokens(s.p_key, 0, {'a'}).Tokens(s.p_key, 0, {259});  // "G"
  first.last().set_choice(1);
  Say(kP, first);
  EXPECT_THAT(s.d->choice_cancels, ::testing::ElementsAre(::testing::Pair(s.d_key, 1u)));
  EXPECT_TRUE(s.d->cancels.empty());
  EXPECT_TRUE(s.p->choice_cancels.empty());
  Say(kP, Step().HandedOff(s.p_key));
  Say(kD, Step().Tokens(s.d_key, 1, {'b'}).End(s.d_key, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(s.client->status().ok());
  EXPECT_EQ(s.client->text, "ab");
  EXPECT_EQ(s.client->other_texts[1], "");
  ASSERT_EQ(s.client->choice_ends.size(), 2u);
  EXPECT_EQ(s.client->choice_ends[0].matched_stop(), "G");
}

}  // namespace
}  // namespace baton::router
