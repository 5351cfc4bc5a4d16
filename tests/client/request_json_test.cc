// SPDX-License-Identifier: Apache-2.0
#include "client/cli/request_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/id_list.h"

namespace baton::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Problem(const std::string& line) {
  Request request;
  const absl::Status status = ApplyRequestJson(line, &request);
  EXPECT_FALSE(status.ok()) << line;
  return std::string(status.message());
}

TEST(RequestJson, ReadsTheFlagsNamesWithUnderscores) {
  Request request;
  ASSERT_TRUE(ApplyRequestJson(
                  R"({"prompt_ids":[1,2,3],"max_tokens":48,"temperature":0,"ignore_eos":true,
                      "top_k":5,"top_p":0.5,"seed":18446744073709551615,"repetition_penalty":1.1,
                      "logprobs":2,"stop":["a","b"],"stop_token_ids":[7],"path":"split",
                      "model":"m","request_id":"r","deadline":"1.5s","tenant":"gold","priority":-2,
                      "cache_salt":"t","prefix_cache":false,"window":64,"window_sinks":32,
                      "window_stride":128,"window_keep":[[64,96],[160,192]]})",
                  &request)
                  .ok());
  EXPECT_THAT(*request.prompt_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(request.max_tokens, 48u);
  EXPECT_EQ(request.temperature, 0.0f);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.top_k, 5u);
  EXPECT_EQ(request.top_p, 0.5f);
  EXPECT_EQ(request.seed, 18446744073709551615ull);
  EXPECT_EQ(request.repetition_penalty, 1.1f);
  EXPECT_EQ(request.logprobs, 2u);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_token_ids, ElementsAre(7));
  EXPECT_EQ(request.path, Path::kSplit);
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.request_id, "r");
  EXPECT_EQ(request.tenant, "gold");
  EXPECT_EQ(request.priority, -2);
  EXPECT_EQ(request.cache_salt, "t");
  EXPECT_FALSE(request.prefix_cache);
  EXPECT_EQ(request.window, 64u);
  EXPECT_EQ(request.window_sinks, 32u);
  EXPECT_EQ(request.window_stride, 128u);
  EXPECT_EQ(request.window_keep,
            (std::vector<std::pair<uint32_t, uint32_t>>{{64, 96}, {160, 192}}));
  EXPECT_EQ(request.deadline, std::chrono::milliseconds(1500));
}

TEST(RequestJson, ReadsTheWholeChainAndEveryStop) {
  Request request;
  ASSERT_TRUE(ApplyRequestJson(R"({"preset": "chatglm2", "min_p": 0.5, "typical_p": 0.25,
      "presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"7": -2.5}, "bad_words": "no",
      "bad_token_sequences": [[1], [2, 3]], "prompt_logprobs": 2, "min_tokens": 4,
      "stop_sequences": [[5, 6]], "include_stop": true, "time_limit": "2s"})",
                               &request)
                  .ok());
  EXPECT_EQ(request.preset, "chatglm2");
  EXPECT_EQ(request.min_p, 0.5f);
  EXPECT_EQ(request.typical_p, 0.25f);
  EXPECT_EQ(request.presence_penalty, 1.0f);
  EXPECT_EQ(request.frequency_penalty, -1.0f);
  ASSERT_EQ(request.logit_bias.size(), 1u);
  EXPECT_EQ(request.logit_bias[0], (std::pair<uint32_t, float>(7, -2.5f)));
  EXPECT_EQ(request.bad_words, std::vector<std::string>{"no"});
  EXPECT_EQ(request.bad_token_sequences[1], (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(request.prompt_logprobs, 2u);
  EXPECT_EQ(request.min_tokens, 4u);
  EXPECT_EQ(request.stop_sequences[0], (std::vector<uint32_t>{5, 6}));
  EXPECT_TRUE(request.include_stop);
  EXPECT_EQ(request.time_limit, std::chrono::seconds(2));
  EXPECT_FALSE(ApplyRequestJson(R"({"logit_bias": {"x": 1}})", &request).ok());
}

TEST(RequestJson, LineOverridesFlagsAndKeepsTheRest) {
  Request request;
  request.max_tokens = 5;
  request.top_k = 3;
  request.prompt_ids = {9};
  ASSERT_TRUE(ApplyRequestJson(R"({"prompt":"hi","max_tokens":6,"stop":"x"})", &request).ok());
  EXPECT_EQ(request.max_tokens, 6u);
  EXPECT_EQ(request.top_k, 3u);
  EXPECT_EQ(request.prompt, "hi");
  EXPECT_FALSE(request.prompt_ids.has_value());
  EXPECT_THAT(request.stop, ElementsAre("x"));
}

TEST(RequestJson, ConstraintsKeepTheOrderOfTheirSchema) {
  Request request;
  ASSERT_TRUE(
      ApplyRequestJson(
          R"({"prompt":"p","constraint":{"json_schema":{"type":"object","properties":{"z":{},"a":{}}}}})",
          &request)
          .ok());
  EXPECT_EQ(request.constraint->json_schema, R"({"type":"object","properties":{"z":{},"a":{}}})");
  ASSERT_TRUE(ApplyRequestJson(R"({"constraint":{"choices":["yes","no"]}})", &request).ok());
  EXPECT_THAT(request.constraint->choices, ElementsAre("yes", "no"));
  EXPECT_FALSE(request.constraint->json_schema.has_value());
  ASSERT_TRUE(ApplyRequestJson(R"({"constraint":{"json_schema":"true"}})", &request).ok());
  EXPECT_EQ(request.constraint->json_schema, "true");
  ASSERT_TRUE(ApplyRequestJson(R"({"constraint":{"regex":"a+"}})", &request).ok());
  EXPECT_EQ(request.constraint->regex, "a+");
  ASSERT_TRUE(ApplyRequestJson(R"({"constraint":{"json":"object"}})", &request).ok());
  EXPECT_EQ(request.constraint->json, "object");
  EXPECT_THAT(Problem(R"({"constraint":{"schema":1}})"), HasSubstr("unknown key \"schema\""));
  EXPECT_THAT(Problem(R"({"constraint":"a"})"), HasSubstr("constraint must be an object"));
  EXPECT_THAT(Problem(R"({"constraint":{"choices":[1]}})"), HasSubstr("a list of strings"));
}

TEST(RequestJson, UnknownKeyIsNamedWithTheNearestKnown) {
  EXPECT_EQ(Problem(R"({"prompt":"a","max_token":3})"),
            "unknown key \"max_token\"; did you mean \"max_tokens\"?");
  EXPECT_EQ(Problem(R"({"zzzzzzzzzzzz":3})"), "unknown key \"zzzzzzzzzzzz\"");
}

TEST(RequestJson, WrongValuesAreNamedWithWhatIsWanted) {
  EXPECT_EQ(Problem(R"({"max_tokens":-1})"),
            "max_tokens must be a whole number from 0 to 4294967295, got -1");
  EXPECT_THAT(Problem(R"({"max_tokens":4294967296})"), HasSubstr("4294967295"));
  EXPECT_THAT(Problem(R"({"max_tokens":1.5})"), HasSubstr("whole number"));
  EXPECT_THAT(Problem(R"({"temperature":"hot"})"), HasSubstr("temperature must be a number"));
  EXPECT_THAT(Problem(R"({"prompt_ids":[1,-2]})"), HasSubstr("prompt_ids[1]"));
  EXPECT_THAT(Problem(R"({"prompt_ids":"1,2"})"), HasSubstr("list of token ids"));
  EXPECT_THAT(Problem(R"({"path":"remote"})"), HasSubstr("auto, split or local"));
  EXPECT_THAT(Problem(R"({"deadline":"soon"})"), HasSubstr("deadline"));
  EXPECT_THAT(Problem(R"({"stop":[1]})"), HasSubstr("stop[0]"));
  EXPECT_THAT(Problem(R"({"ignore_eos":1})"), HasSubstr("true or false"));
}

TEST(RequestJson, RefusesWhatIsNoObjectAndSeveralInputs) {
  EXPECT_THAT(Problem("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(Problem("{\"prompt\":"), HasSubstr("not a JSON object"));
  EXPECT_THAT(Problem("{\"prompt\":\"\xff\"}"), HasSubstr("valid UTF-8"));
  EXPECT_THAT(Problem(R"({"prompt":"a","prompt_ids":[1]})"), HasSubstr("one of"));
}

TEST(RequestJson, ConversationIsAListOrAnObjectWithMessages) {
  const std::string list = R"([{"role":"user","content":"hi"}])";
  for (const std::string& text : {list, "{\"messages\":" + list + "}"}) {
    const auto turns = ParseConversation(text);
    ASSERT_TRUE(turns.ok()) << turns.status();
    ASSERT_EQ(turns->size(), 1u);
    EXPECT_EQ(turns->front().role, "user");
    EXPECT_EQ(turns->front().content, "hi");
  }
  EXPECT_FALSE(ParseConversation("[]").ok());
  EXPECT_FALSE(ParseConversation("{}").ok());
  EXPECT_THAT(std::string(ParseConversation(R"([{"role":"user"}])").status().message()),
              HasSubstr("messages[0].content is missing"));
  EXPECT_THAT(std::string(ParseConversation(R"([{"role":"u","context":""}])").status().message()),
              HasSubstr("did you mean \"content\"?"));
}

TEST(IdList, ReadsCommasBlanksAndBrackets) {
  EXPECT_THAT(*ParseIdList("ids", "1,2, 3\n4"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*ParseIdList("ids", "[5, 6]"), ElementsAre(5, 6));
  EXPECT_TRUE(ParseIdList("ids", "")->empty());
  EXPECT_EQ(JoinIds({1, 2}), "1,2");
  for (const char* bad : {"1,x", "-1", "4294967296", "1.5"}) {
    EXPECT_THAT(std::string(ParseIdList("ids", bad).status().message()), HasSubstr("--ids: "));
  }
}

TEST(RequestJson, ReadsEveryStrategy) {
  Request request;
  ASSERT_TRUE(ApplyRequestJson(R"({"n": 2, "best_of": 4, "beams": 3, "length_penalty": 0.5,
      "early_stopping": "never", "phases": [{"beams": 2, "max_tokens": 8, "until_token_ids": [1],
      "repetition_penalty": 1.5}, {"temperature": 0.7, "bad_words": "no"}]})",
                               &request)
                  .ok());
  EXPECT_EQ(request.n, 2u);
  EXPECT_EQ(request.best_of, 4u);
  EXPECT_EQ(request.beam->width, 3u);
  EXPECT_EQ(request.beam->length_penalty, 0.5f);
  EXPECT_EQ(request.beam->early_stopping, "never");
  ASSERT_EQ(request.phases.size(), 2u);
  EXPECT_EQ(request.phases[0].beam->width, 2u);
  EXPECT_EQ(request.phases[0].max_tokens, 8u);
  EXPECT_THAT(request.phases[0].until_token_ids, ElementsAre(1));
  EXPECT_EQ(request.phases[0].repetition_penalty, 1.5f);
  EXPECT_FALSE(request.phases[1].beam.has_value());
  EXPECT_EQ(request.phases[1].temperature, 0.7f);
  EXPECT_THAT(request.phases[1].bad_words, ElementsAre("no"));
}

TEST(RequestJson, PhasesNameWhatIsWrongAndWhere) {
  EXPECT_THAT(Problem(R"({"phases": 3})"), HasSubstr("phases must be a list of phases"));
  EXPECT_THAT(Problem(R"({"phases": [{}, 4]})"), HasSubstr("phases[1] must be an object"));
  EXPECT_THAT(Problem(R"({"phases": [{"max_token": 4}]})"),
              HasSubstr("phases[0]: unknown key \"max_token\"; did you mean \"max_tokens\""));
  EXPECT_THAT(Problem(R"({"phases": [{"logprobs": 4}]})"), HasSubstr("unknown key"));
}

}  // namespace
}  // namespace baton::cli
