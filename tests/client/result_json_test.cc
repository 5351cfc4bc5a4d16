// SPDX-License-Identifier: Apache-2.0
#include "client/cli/result_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using Json = nlohmann::json;

Result Answer() {
  Result result;
  result.token_ids = {1, 2, 3};
  result.text = "日\n";
  result.finish_reason = "length";
  result.prompt_tokens = 4;
  result.cached_prompt_tokens = 2;
  result.completion_tokens = 3;
  result.timing = {1, 2, 3, 4.00049, 5, 6};
  result.token_gaps_ms = {10, 20};
  result.prefill_worker = "p";
  result.decode_worker = "d";
  result.transport = "tcp";
  result.handoff_bytes = 4096;
  result.handoff_cached_tokens = 32;
  result.foreign_kv = true;
  result.path_reason = "predicted";
  result.predicted_split = 7.5;
  result.predicted_local = 9;
  result.scheduling = {2, 70, 5, 30.5};
  result.speculation = {2, 4, 1};
  return result;
}

TEST(ResultJson, HasTheDocumentedShapeOnOneLine) {
  const std::string text = ResultToJson(Answer());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(text), Json::parse(R"({
    "token_ids": [1, 2, 3], "text": "日\n", "finish_reason": "length",
    "usage": {"prompt_tokens": 4, "cached_prompt_tokens": 2, "completion_tokens": 3},
    "timing_ms": {"queue": 1.0, "prefill": 2.0, "transfer": 3.0, "first_token": 4.0,
                  "decode": 5.0, "total": 6.0},
    "itl_ms": {"p50": 15.0, "p99": 19.9, "max": 20.0},
    "path": {"prefill_worker": "p", "decode_worker": "d", "transport": "tcp",
             "handoff_bytes": 4096, "handoff_cached_tokens": 32, "foreign_kv": true,
             "reason": "predicted", "predicted_split_ms": 7.5, "predicted_local_ms": 9.0},
    "scheduling": {"preemptions": 2, "recomputed_tokens": 70, "swapped_bytes": 5,
                   "preempted_ms": 30.5},
    "speculation": {"steps": 2, "drafted_tokens": 4, "accepted_tokens": 1,
                    "tokens_per_step": 1.5}})"));
}

TEST(ResultJson, LogprobsComeWhenThereAreSome) {
  Result result = Answer();
  result.logprobs = {{-0.5f, {{7, -0.5f}, {8, -1.5f}}}};
  const Json json = Json::parse(ResultToJson(result));
  EXPECT_EQ(json["logprobs"], Json::parse(R"([{"logprob": -0.5, "text": "", "top": [
    {"token_id": 7, "logprob": -0.5}, {"token_id": 8, "logprob": -1.5}]}])"));
  EXPECT_FALSE(json.contains("prompt_logprobs"));
}

// A part of a character comes as its bytes; alternatives stand on their own.
TEST(ResultJson, LogprobsOfPartialCharactersKeepTheirBytes) {
  Result result = Answer();
  result.prompt_logprobs = {{-1, {{7, -1}, {8, -2}}, "\xF0\x9F", {"\xF0\x9F", "a"}}};
  const Json json = Json::parse(ResultToJson(result));
  ASSERT_EQ(json["prompt_logprobs"].size(), 2u);
  EXPECT_TRUE(json["prompt_logprobs"][0].is_null());
  const Json& entry = json["prompt_logprobs"][1];
  EXPECT_EQ(entry["bytes"], Json::parse("[240, 159]"));
  EXPECT_EQ(entry["top"][0]["bytes"], Json::parse("[240, 159]"));
  EXPECT_EQ(entry["top"][1]["text"], "a");
  EXPECT_FALSE(entry["top"][1].contains("bytes"));
}

TEST(ResultJson, FailureIsAnErrorAndNothingElse) {
  Result result = Answer();
  result.status.code = StatusCode::kInvalidArgument;
  result.status.message = "top_p";
  EXPECT_EQ(Json::parse(ResultToJson(result)),
            Json::parse(R"({"error": {"code": "INVALID_ARGUMENT", "message": "top_p"}})"));
  result.status.field = "sampling.top_p";
  result.status.retry_after = std::chrono::milliseconds(250);
  const Json error = Json::parse(ResultToJson(result))["error"];
  EXPECT_EQ(error["field"], "sampling.top_p");
  EXPECT_EQ(error["retry_after_ms"], 250);
}

TEST(ResultJson, SummarySaysWhereTheTimeWent) {
  EXPECT_EQ(TimingSummary(Answer()),
            "prompt 4 tokens (2 cached), answer 3 tokens (length) in 6 ms: queue 1.0, prefill 2.0, "
            "transfer 3.0, first token 4.0, decode 5.0 ms (400.0 tokens/s); 1 of 4 guesses right, "
            "1.50 tokens a step; put aside 2 times for 30 ms; p -> d over tcp");
}

TEST(StatusLine, NamesTheFieldOnce) {
  Status status;
  status.code = StatusCode::kInvalidArgument;
  status.message = "is 0";
  EXPECT_EQ(StatusLine(status), "INVALID_ARGUMENT: is 0");
  status.field = "top_p";
  EXPECT_EQ(StatusLine(status), "INVALID_ARGUMENT: is 0 (field top_p)");
  status.message = "top_p: is 0";
  status.retry_after = std::chrono::milliseconds(5);
  EXPECT_EQ(StatusLine(status), "INVALID_ARGUMENT: top_p: is 0 (try again in 5 ms)");
}

TEST(ResultJson, ChoicesAreListedWhenThereAreSeveralOrTheyWereRanked) {
  Result result = Answer();
  result.choices.resize(1);
  EXPECT_FALSE(Json::parse(ResultToJson(result)).contains("choices"));
  result.choices[0].token_ids = {1};
  result.choices[0].finish_reason = "stop";
  result.choices[0].matched_token_ids = {1};
  result.choices[0].score = -0.5;
  EXPECT_EQ(Json::parse(ResultToJson(result))["choices"], Json::parse(R"([{"index": 0,
    "token_ids": [1], "text": "", "finish_reason": "stop", "matched_token_ids": [1],
    "score": -0.5}])"));
  result.choices[0].score.reset();
  result.choices.emplace_back().text = "two";
  EXPECT_EQ(Json::parse(ResultToJson(result))["choices"][1]["text"], "two");
}

}  // namespace
}  // namespace baton::cli
