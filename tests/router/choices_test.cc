// SPDX-License-Identifier: Apache-2.0
// Several answers of one request: merged by choice, ranked, and each with its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/generation.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;

class ChoicesTest : public ::testing::Test {
 protected:
  // A split request of `made` answers, of which `choices` are returned.
  void Start(uint32_t choices, uint32_t made, bool split = true) {
    auto request = std::make_shared<ValidatedRequest>(request_);
    request->prompt = {1, 2, 3};
    request->max_tokens = 8;
    request->choices = choices;
    request->choices_made = made;
    request->width = std::max(made, request->width);
    request_ = *request;
    generation_ = std::make_unique<Generation>(std::move(request), model_, now_,
                                               Generation::Route{split ? "p" : "", "d", 0, 0, ""},
                                               &router_metrics_);
  }

  static v1::SequenceTokens Tokens(uint32_t choice, uint32_t first, std::vector<uint32_t> ids,
                                   v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
    v1::SequenceTokens tokens;
    tokens.set_choice(choice);
    tokens.set_first_index(first);
    tokens.mutable_token_ids()->Add(ids.begin(), ids.end());
    tokens.set_finish_reason(finish);
    return tokens;
  }
  static v1::SequenceTokens Scored(uint32_t choice, uint32_t first, uint32_t id, float logprob) {
    v1::SequenceTokens tokens = Tokens(choice, first, {id});
    tokens.add_logprobs()->set_logprob(logprob);
    return tokens;
  }

  void Say(Source source, const v1::SequenceTokens& tokens) {
    const absl::Status status = generation_->OnTokens(source, tokens, now_);
    EXPECT_TRUE(status.ok()) << status;
    Drain();
  }
  void End(Source source, v1::FinishReason reason, bool handed_off = false) {
    v1::SequenceEnd end;
    end.set_reason(reason);
    end.set_handed_off(handed_off);
    EXPECT_TRUE(generation_->OnEnd(source, end, now_).ok());
    Drain();
  }
  void Drain() {
    for (v1::GenerateResponse& event : generation_->TakeEvents()) client_.Send(event, now_);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ValidatedRequest request_;
  metrics::Metrics metrics_;
  RouterMetrics router_metrics_{&metrics_};
  std::shared_ptr<ServedModel> model_ = MakeTextModel({"DEF"});
  std::unique_ptr<Generation> generation_;
  FakeClient client_;
};

TEST_F(ChoicesTest, StreamsOfBothWorkersAreMergedByChoice) {
  Start(2, 2);
  Say(Source::kPrefill, Tokens(0, 0, {'a'}));
  // Overtakes token 0 of its choice.
  Say(Source::kDecode, Tokens(1, 1, {'y'}));
  Say(Source::kDecode, Tokens(0, 1, {'b'}, v1::FINISH_REASON_LENGTH));
  EXPECT_TRUE(client_.others.empty());
  EXPECT_FALSE(generation_->handed_over());
  Say(Source::kPrefill, Tokens(1, 0, {'x'}));
  EXPECT_TRUE(generation_->handed_over());
  EXPECT_THAT(client_.ids, ElementsAre('a', 'b'));
  EXPECT_THAT(client_.others[1], ElementsAre('x', 'y'));
  EXPECT_EQ(client_.other_texts[1], "xy");
  ASSERT_EQ(client_.choice_ends.size(), 1u);
  EXPECT_EQ(client_.choice_ends[0].choice(), 0u);
  EXPECT_EQ(client_.choice_ends[0].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(client_.choice_ends[0].completion_tokens(), 2u);
  EXPECT_FALSE(generation_->finished());
  Say(Source::kDecode, Tokens(1, 2, {256}, v1::FINISH_REASON_STOP));
  EXPECT_FALSE(generation_->finished());
  End(Source::kDecode, v1::FINISH_REASON_STOP);
  ASSERT_EQ(client_.finished.size(), 1u);
  EXPECT_EQ(client_.finished[0].reason(), v1::FINISH_REASON_LENGTH);  // of choice 0
  EXPECT_EQ(client_.finished[0].usage().completion_tokens(), 5u);     // of both
  ASSERT_EQ(client_.choice_ends.size(), 2u);
  EXPECT_THAT(client_.choice_ends[1].matched_token_ids(), ElementsAre(256));
}

TEST_F(ChoicesTest, EndOfTheDecodeWorkerWaitsForEveryFirstToken) {
  Start(2, 2);
  Say(Source::kDecode, Tokens(0, 1, {'b'}, v1::FINISH_REASON_LENGTH));
  Say(Source::kDecode, Tokens(1, 1, {'y'}, v1::FINISH_REASON_LENGTH));
  End(Source::kDecode, v1::FINISH_REASON_LENGTH);
  Say(Source::kPrefill, Tokens(0, 0, {'a'}));
  EXPECT_FALSE(generation_->finished());
  Say(Source::kPrefill, Tokens(1, 0, {'x'}));
  EXPECT_TRUE(generation_->finished());
  EXPECT_THAT(client_.ids, ElementsAre('a', 'b'));
  EXPECT_THAT(client_.others[1], ElementsAre('x', 'y'));
}

TEST_F(ChoicesTest, AStopTextEndsItsChoiceAloneAndTheWorkerIsToldOnce) {
  request_.stops = {"bc"};
  Start(3, 3);
  for (uint32_t i = 0; i < 3; ++i) Say(Source::kPrefill, Tokens(i, 0, {'a'}));
  Say(Source::kDecode, Tokens(1, 1, {'b'}));
  Say(Source::kDecode, Tokens(1, 2, {'c'}));
  EXPECT_THAT(generation_->TakeStopped(), ElementsAre(1));
  EXPECT_TRUE(generation_->TakeStopped().empty());
  EXPECT_EQ(client_.other_texts[1], "a");
  // Late ones are of no account.
  Say(Source::kDecode, Tokens(1, 3, {'d'}));
  EXPECT_EQ(client_.others[1].size(), 3u);
  ASSERT_EQ(client_.choice_ends.size(), 1u);
  EXPECT_EQ(client_.choice_ends[0].matched_stop(), "bc");
  // The last ones end the request.
  Say(Source::kDecode, Tokens(0, 1, {'b', 'c'}));
  EXPECT_THAT(generation_->TakeStopped(), ElementsAre(0));
  Say(Source::kDecode, Tokens(2, 1, {'b', 'c'}));
  EXPECT_TRUE(generation_->finished());
  EXPECT_EQ(client_.choice_ends.size(), 3u);
}

TEST_F(ChoicesTest, BestOfTellsTheBestMeansAtTheEndAndCountsAll) {
  request_.sampling.set_logprobs(0);
  request_.hides_logprobs = true;
  Start(2, 4, /*split=*/false);
  const float logprobs[4][2] = {{-2, -2}, {-1, -1}, {-3, 0}, {-0.5f, -1.5f}};
  for (uint32_t index = 0; index < 2; ++index) {
    for (uint32_t choice = 0; choice < 4; ++choice) {
      v1::SequenceTokens tokens =
          Scored(choice, index, 'a' + 4 * index + choice, logprobs[choice][index]);
      if (index == 1) tokens.set_finish_reason(v1::FINISH_REASON_LENGTH);
      Say(Source::kDecode, tokens);
    }
  }
  EXPECT_TRUE(client_.ids.empty());
  End(Source::kDecode, v1::FINISH_REASON_LENGTH);
  // 1 and 3 have equal means: the earlier one first.
  EXPECT_THAT(client_.ids, ElementsAre('b', 'f'));
  EXPECT_THAT(client_.others[1], ElementsAre('d', 'h'));
  EXPECT_EQ(client_.others.size(), 1u);
  EXPECT_EQ(client_.logprobs, 0);
  ASSERT_EQ(client_.choice_ends.size(), 2u);
  EXPECT_EQ(client_.choice_ends[0].score(), -1);
  EXPECT_EQ(client_.choice_ends[1].score(), -1);
  EXPECT_EQ(client_.finished[0].usage().completion_tokens(), 8u);
}

TEST_F(ChoicesTest, BeamsComeFromTheDecodeWorkerWithTheirScores) {
  request_.decoding.mutable_beam()->set_width(3);
  request_.begins_with_search = true;
  request_.width = 3;
  Start(2, 2);
  v1::SequenceTokens begun;
  begun.set_prefill_end_unix_us(5);
  Say(Source::kPrefill, begun);
  EXPECT_FALSE(generation_->handed_over());
  End(Source::kPrefill, v1::FINISH_REASON_UNSPECIFIED, /*handed_off=*/true);
  EXPECT_TRUE(generation_->handed_over());
  for (uint32_t choice = 0; choice < 2; ++choice) {
    v1::SequenceTokens tokens = Tokens(choice, 0, {'a' + choice, 256}, v1::FINISH_REASON_STOP);
    tokens.set_score(-1.0 - choice);
    Say(Source::kDecode, tokens);
  }
  End(Source::kDecode, v1::FINISH_REASON_STOP);
  EXPECT_THAT(client_.ids, ElementsAre('a', 256));
  EXPECT_THAT(client_.others[1], ElementsAre('b', 256));
  ASSERT_EQ(client_.choice_ends.size(), 2u);
  EXPECT_EQ(client_.choice_ends[1].score(), -2);
  EXPECT_EQ(client_.choice_ends[1].reason(), v1::FINISH_REASON_STOP);
}

// The search does not look at stop texts; what is returned is cut all the same.
TEST_F(ChoicesTest, AStopTextCutsAHypothesisWhereItMatches) {
  request_.decoding.mutable_beam()->set_width(2);
  request_.begins_with_search = true;
  request_.stops = {"bc"};
  request_.width = 2;
  Start(2, 2, /*split=*/false);
  Say(Source::kDecode, Tokens(0, 0, {'a', 'b', 'c', 'd'}, v1::FINISH_REASON_LENGTH));
  Say(Source::kDecode, Tokens(1, 0, {'a', 'b', 'd', 'c'}, v1::FINISH_REASON_LENGTH));
  End(Source::kDecode, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(client_.text, "a");
  EXPECT_THAT(client_.ids, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(client_.other_texts[1], "abdc");
  ASSERT_EQ(client_.choice_ends.size(), 2u);
  EXPECT_EQ(client_.choice_ends[0].reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(client_.choice_ends[0].matched_stop(), "bc");
  EXPECT_EQ(client_.choice_ends[1].reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(ChoicesTest, TimeLimitEndsAllWithWhatTheyHave) {
  Start(2, 2, /*split=*/false);
  EXPECT_FALSE(generation_->EndInTime(now_));
  Say(Source::kDecode, Tokens(0, 0, {'a'}));
  Say(Source::kDecode, Tokens(1, 0, {'x'}));
  EXPECT_TRUE(generation_->EndInTime(now_));
  Drain();
  ASSERT_EQ(client_.choice_ends.size(), 2u);
  for (const v1::ChoiceFinished& end : client_.choice_ends) {
    EXPECT_EQ(end.reason(), v1::FINISH_REASON_TIME);
  }
}

TEST_F(ChoicesTest, GapsRepeatsAndForeignChoicesAreRefused) {
  Start(2, 2);
  const auto refused = [&](Source source, const v1::SequenceTokens& tokens) {
    return generation_->OnTokens(source, tokens, now_).code() == absl::StatusCode::kInternal;
  };
  EXPECT_TRUE(refused(Source::kPrefill, Tokens(2, 0, {'a'})));
  EXPECT_TRUE(refused(Source::kPrefill, Tokens(1, 0, {'a', 'b'})));
  EXPECT_TRUE(refused(Source::kPrefill, Tokens(1, 0, {})));
  Say(Source::kPrefill, Tokens(1, 0, {'a'}));
  EXPECT_TRUE(refused(Source::kPrefill, Tokens(1, 0, {'a'})));
  EXPECT_TRUE(refused(Source::kDecode, Tokens(1, 2, {'c'})));
}

TEST_F(ChoicesTest, BlocksAreCountedByPromptAndLiveChoice) {
  Start(3, 3, /*split=*/false);
  for (uint32_t i = 0; i < 3; ++i) Say(Source::kDecode, Tokens(i, 0, {'a'}));
  // 3 + 1 + 1 tokens each in blocks of 4, of which none is shared.
  EXPECT_EQ(generation_->KvTokens(4), 3u * 8);
  // Of 3, the whole block is.
  EXPECT_EQ(generation_->KvTokens(3), 3u + 3 * 3);
  Say(Source::kDecode, Tokens(1, 1, {256}, v1::FINISH_REASON_STOP));
  EXPECT_EQ(generation_->KvTokens(3), 3u + 2 * 3);
}

}  // namespace
}  // namespace baton::router
