// SPDX-License-Identifier: Apache-2.0
// What clients are told of text, log-probabilities and counts, however a
// worker's messages cut the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/router/dispatcher_fixture.h"

namespace baton::router {
namespace {

std::vector<uint32_t> Bytes(const std::string& text) {
  std::vector<uint32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

class AnswerText : public DispatcherTest {
 protected:
  // An answer of these tokens, so many in each of the worker's messages.
  std::shared_ptr<FakeClient> Answer(const ValidatedRequest& request,
                                     const std::vector<uint32_t>& ids, size_t at_once,
                                     v1::FinishReason reason) {
    const auto client = Submit(request);
    const uint64_t key = d_->assigns.back().sequence_key();
    for (size_t first = 0; first < ids.size(); first += at_once) {
      const size_t end = std::min(first + at_once, ids.size());
      const std::vector<uint32_t> part(ids.begin() + static_cast<std::ptrdiff_t>(first),
                                       ids.begin() + static_cast<std::ptrdiff_t>(end));
      Step step;
      step.Tokens(key, static_cast<uint32_t>(first), part);
      if (request.sampling.has_logprobs()) {
        for (const uint32_t id : part) {
          v1::TokenLogprobs* logprobs = step.last().add_logprobs();
          logprobs->set_logprob(-1);
          for (const uint32_t other : {id, uint32_t{'o'}}) {
            logprobs->add_top()->set_token_id(other);
          }
        }
      }
      Say(kD, step);
    }
    Say(kD, Step().End(key, reason));
    return client;
  }

  static ValidatedRequest LocalRequest(size_t max_tokens) {
    ValidatedRequest request = Request(v1::PATH_LOCAL);
    request.max_tokens = static_cast<uint32_t>(max_tokens);
    return request;
  }

  void SetUp() override {
    DispatcherTest::SetUp();
    d_ = AttachDecode();
  }

  std::shared_ptr<FakeLink> d_;
};

// Every message is valid UTF-8: FakeClient checks it.
TEST_F(AnswerText, IsTheSameHoweverManyTokensAMessageBrings) {
  const std::string text = "삼겹살 깰 😊 𠮷 “x”";
  const std::string cut = "ok \xF0\x9F";  // by max_tokens, inside of a character
  const std::string invalid = "\xE2";     // and then the end
  for (const size_t at_once : {1, 2, 3, 5, 100}) {
    const auto whole =
        Answer(LocalRequest(text.size()), Bytes(text), at_once, v1::FINISH_REASON_LENGTH);
    EXPECT_TRUE(whole->status().ok());
    EXPECT_EQ(whole->text, text) << at_once;
    const auto half =
        Answer(LocalRequest(cut.size()), Bytes(cut), at_once, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(half->text, "ok \uFFFD\uFFFD") << at_once;
    std::vector<uint32_t> ids = Bytes(invalid);
    ids.push_back(FakeTokenizer::kEnd);
    const auto lone = Answer(LocalRequest(5), ids, at_once, v1::FINISH_REASON_STOP);
    EXPECT_TRUE(lone->status().ok());
    EXPECT_EQ(lone->text, "\uFFFD") << at_once;
  }
}

TEST_F(AnswerText, PartsOfACharacterHaveLogprobsWithTheirRawBytes) {
  ValidatedRequest request = LocalRequest(4);
  request.sampling.set_logprobs(2);
  for (const size_t at_once : {1, 4}) {
    const auto client = Answer(request, Bytes("😊"), at_once, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(client->text, "😊");
    ASSERT_EQ(client->scored.size(), 4u);
    const std::string bytes = "\xF0\x9F\x98\x8A";
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(client->scored[i].token_bytes(), bytes.substr(i, 1));
      EXPECT_EQ(client->scored[i].top(0).token_bytes(), bytes.substr(i, 1));
      EXPECT_EQ(client->scored[i].top(1).token_bytes(), "o");  // on its own, not joined to others
    }
  }
}

// The token counts and has its log-probabilities, though only a part of its
// text is before the stop.
TEST_F(AnswerText, StopInsideOfALongerTokenKeepsThatTokensLogprobs) {
  ValidatedRequest request = LocalRequest(7);
  request.stops = {"L"};
  request.sampling.set_logprobs(2);
  const uint32_t piece = FakeTokenizer::kPieces + 4;  // "KLM"
  for (const size_t at_once : {1, 3}) {
    const auto client = Answer(request, {'a', piece, 'b'}, at_once, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(client->text, "aK");
    EXPECT_EQ(client->ids, (std::vector<uint32_t>{'a', piece}));
    ASSERT_EQ(client->scored.size(), 2u);
    EXPECT_EQ(client->scored[1].token_bytes(), "KLM");
    ASSERT_EQ(client->finished.size(), 1u);
    EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_STOP_TEXT);
    EXPECT_EQ(client->finished[0].usage().completion_tokens(), 2u);
  }
}

// On the split path token 0 comes from elsewhere and must count once.
TEST_F(AnswerText, UsageIsTheNumberOfTokensAtEveryLimit) {
  const auto p = AttachPrefill();
  for (const uint32_t limit : {1u, 2u, 5u, 20u}) {
    ValidatedRequest request = Request(v1::PATH_SPLIT);
    request.max_tokens = limit;
    const auto client = Submit(request);
    const uint64_t d_key = d_->assigns.back().sequence_key();
    Accept(kD, d_key);
    const uint64_t p_key = p->assigns.back().sequence_key();
    Step first;
    first.Tokens(p_key, 0, {'a'});
    if (limit == 1) {
      Say(kP, first.End(p_key, v1::FINISH_REASON_LENGTH));
      Say(kD, Step().Fail(d_key, Code::kCancelled, "cancelled"));
    } else {
      Say(kP, first.HandedOff(p_key));
      Say(kD, Step()
                  .Tokens(d_key, 1, std::vector<uint32_t>(limit - 1, 'b'))
                  .End(d_key, v1::FINISH_REASON_LENGTH));
    }
    ASSERT_TRUE(client->status().ok()) << limit;
    EXPECT_EQ(client->ids.size(), limit);
    EXPECT_EQ(client->text, "a" + std::string(limit - 1, 'b'));
    EXPECT_EQ(client->finished[0].usage().completion_tokens(), limit);
    EXPECT_EQ(client->finished[0].reason(), v1::FINISH_REASON_LENGTH);
  }
}

// Else both would draw token 0's neighbours from different numbers.
TEST_F(AnswerText, BothWorkersDrawFromOneSeed) {
  const auto p = AttachPrefill();
  ValidatedRequest request = Request(v1::PATH_SPLIT);
  request.sampling.set_seed(0x123456789abcdef0);
  Submit(request);
  Accept(kD, d_->assigns[0].sequence_key());
  EXPECT_EQ(d_->assigns[0].sampling().seed(), 0x123456789abcdef0u);
  EXPECT_EQ(p->assigns.at(0).sampling().SerializeAsString(),
            d_->assigns[0].sampling().SerializeAsString());
}

}  // namespace
}  // namespace baton::router
