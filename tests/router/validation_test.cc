// SPDX-License-Identifier: Apache-2.0
#include "router/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "common/prefix/block_hash.h"
#include "common/rpc/status.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

// "abc" with the prefix token: 4 prompt tokens of a context of 100.
v1::GenerateRequest Valid() {
  v1::GenerateRequest request;
  request.set_prompt("abc");
  return request;
}

struct Refused {
  std::string name;
  std::function<void(v1::GenerateRequest&)> change;
  std::string field;    // that the error names
  std::string problem;  // that the message holds
};

class RefusedFields : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedFields, AreNamedWithLimitAndValue) {
  v1::GenerateRequest request = Valid();
  GetParam().change(request);
  const absl::Status status = Validate(request, *MakeTextModel()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(rpc::FieldOf(status), GetParam().field) << status;
  EXPECT_NE(status.message().find(GetParam().problem), std::string::npos) << status;
}

using R = v1::GenerateRequest;
INSTANTIATE_TEST_SUITE_P(
    Prompt, RefusedFields,
    ::testing::Values(
        Refused{"missing", [](R& r) { r.clear_prompt(); }, "prompt", "missing"},
        Refused{"empty", [](R& r) { r.set_prompt(""); }, "prompt", "empty"},
        Refused{"empty_ids", [](R& r) { r.mutable_prompt_ids(); }, "prompt_ids.ids", "empty"},
        Refused{"context", [](R& r) { r.set_prompt(std::string(99, 'x')); }, "prompt",
                "has 100 tokens; the context of 100 tokens allows at most 99"},
        Refused{"bytes", [](R& r) { r.set_prompt(std::string(25601, 'x')); }, "prompt",
                "has 25601 bytes; a context of 100 tokens allows at most 25600"},
        Refused{"vocabulary",
                [](R& r) {
                  r.mutable_prompt_ids()->add_ids(1);
                  r.mutable_prompt_ids()->add_ids(512);
                },
                "prompt_ids.ids[1]", "is 512; the vocabulary has 512 tokens"},
        Refused{"request_id", [](R& r) { r.set_request_id(std::string(129, 'x')); }, "request_id",
                "has 129 bytes; the limit is 128"},
        Refused{"tenant", [](R& r) { r.set_tenant(std::string(129, 'x')); }, "tenant",
                "has 129 bytes; the limit is 128"},
        Refused{"priority_high", [](R& r) { r.set_priority(5); }, "priority",
                "is 5; it must be -4 to 4"},
        Refused{"priority_low", [](R& r) { r.set_priority(-2147483647); }, "priority",
                "is -2147483647"},
        Refused{"cache_salt", [](R& r) { r.set_cache_salt(std::string(129, 'x')); }, "cache_salt",
                "has 129 bytes; the limit is 128"},
        Refused{"window", [](R& r) { r.set_window(100); }, "window",
                "window is 100; it must be a multiple of 32"},
        Refused{"sinks_alone", [](R& r) { r.set_window_sinks(32); }, "window",
                "sinks need a window"},
        Refused{"stride_alone", [](R& r) { r.set_window_stride(64); }, "window",
                "stride is 64 and window is 0"},
        Refused{"stride",
                [](R& r) {
                  r.set_window(64);
                  r.set_window_stride(100);
                },
                "window", "stride is 100; it must be a multiple of 32"},
        Refused{"keep",
                [](R& r) {
                  r.set_window(64);
                  r.add_window_keep()->set_begin(32);
                },
                "window", "keep[0] is 32 to 0"},
        Refused{"keep_count",
                [](R& r) {
                  r.set_window(64);
                  for (int i = 0; i < 9; ++i) r.add_window_keep();
                },
                "window", "keep has 9 ranges; the limit is 8"},
        Refused{"path", [](R& r) { r.set_path(static_cast<v1::Path>(7)); }, "path", "is 7"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Sampling, RefusedFields,
    ::testing::Values(
        Refused{"t_negative", [](R& r) { r.mutable_sampling()->set_temperature(-1); },
                "sampling.temperature", "is -1; it must be in [0, 100]"},
        Refused{"t_nan", [](R& r) { r.mutable_sampling()->set_temperature(kNan); },
                "sampling.temperature", "nan"},
        Refused{"t_inf", [](R& r) { r.mutable_sampling()->set_temperature(kInf); },
                "sampling.temperature", "is inf"},
        Refused{"t_huge", [](R& r) { r.mutable_sampling()->set_temperature(1e6f); },
                "sampling.temperature", "is 1e+06"},
        Refused{"p_zero", [](R& r) { r.mutable_sampling()->set_top_p(0); }, "sampling.top_p",
                "is 0; it must be in (0, 1]"},
        Refused{"p_negative", [](R& r) { r.mutable_sampling()->set_top_p(-1); }, "sampling.top_p",
                "is -1"},
        Refused{"p_two", [](R& r) { r.mutable_sampling()->set_top_p(2); }, "sampling.top_p",
                "is 2"},
        Refused{"p_nan", [](R& r) { r.mutable_sampling()->set_top_p(kNan); }, "sampling.top_p",
                "nan"},
        Refused{"k_negative",
                [](R& r) { r.mutable_sampling()->set_top_k(static_cast<uint32_t>(-1)); },
                "sampling.top_k", "is 4294967295; the limit is 2147483647"},
        Refused{"penalty_zero", [](R& r) { r.mutable_sampling()->set_repetition_penalty(0); },
                "sampling.repetition_penalty", "is 0; it must be in (0, 10]"},
        Refused{"penalty_negative", [](R& r) { r.mutable_sampling()->set_repetition_penalty(-1); },
                "sampling.repetition_penalty", "is -1"},
        Refused{"penalty_nan", [](R& r) { r.mutable_sampling()->set_repetition_penalty(kNan); },
                "sampling.repetition_penalty", "nan"},
        Refused{"prompt_logprobs", [](R& r) { r.mutable_sampling()->set_prompt_logprobs(21); },
                "sampling.prompt_logprobs", "is 21; the limit is 20"},
        Refused{"min_p", [](R& r) { r.mutable_sampling()->set_min_p(1.5f); }, "sampling.min_p",
                "is 1.5; it must be in [0, 1]"},
        Refused{"typical", [](R& r) { r.mutable_sampling()->set_typical_p(kNan); },
                "sampling.typical_p", "nan"},
        Refused{"presence", [](R& r) { r.mutable_sampling()->set_presence_penalty(-3); },
                "sampling.presence_penalty", "is -3; it must be in [-2, 2]"},
        Refused{"frequency", [](R& r) { r.mutable_sampling()->set_frequency_penalty(kInf); },
                "sampling.frequency_penalty", "is inf"},
        Refused{"bias_outside",
                [](R& r) { (*r.mutable_sampling()->mutable_logit_bias())[512] = 1; },
                "sampling.logit_bias[512]", "the vocabulary has 512 tokens"},
        Refused{"bias_nan", [](R& r) { (*r.mutable_sampling()->mutable_logit_bias())[5] = kNan; },
                "sampling.logit_bias[5]", "nan"},
        Refused{"constraint_empty", [](R& r) { r.mutable_constraint(); }, "constraint",
                "is empty; exactly one of json, json_schema, regex and choices"},
        Refused{"constraint_two",
                [](R& r) {
                  r.mutable_constraint()->set_regex("a");
                  r.mutable_constraint()->set_json_schema("{}");
                },
                "constraint", "has json_schema and regex set"},
        Refused{"constraint_schema",
                [](R& r) { r.mutable_constraint()->set_json_schema(R"({"items":{"not":{}}})"); },
                "constraint.json_schema", "keyword \"not\" at #/items is not supported"},
        Refused{"constraint_bomb",
                [](R& r) { r.mutable_constraint()->set_json_schema(R"({"$ref":"#"})"); },
                "constraint.json_schema", "refers to itself"},
        Refused{"constraint_regex", [](R& r) { r.mutable_constraint()->set_regex("a(?=b)"); },
                "constraint.regex", "lookahead (?=...) at byte 1 is not supported"},
        Refused{"constraint_choice", [](R& r) { r.mutable_constraint()->add_choices(""); },
                "constraint.choices", "text 0 has 0 bytes"},
        Refused{"constraint_ignore_eos",
                [](R& r) {
                  r.mutable_constraint()->set_regex("a");
                  r.mutable_stop()->set_ignore_eos(true);
                },
                "constraint.regex", "is set together with stop.ignore_eos"},
        Refused{"constraint_max_tokens",
                [](R& r) {
                  r.mutable_constraint()->set_regex("a{100}");
                  r.mutable_stop()->set_max_tokens(3);
                },
                "stop.max_tokens",
                "is 3; the shortest answer that constraint.regex allows has 100 bytes"},
        Refused{"bad_word", [](R& r) { r.mutable_sampling()->add_bad_words(""); },
                "sampling.bad_words[0]", "has 0 bytes"},
        Refused{"bad_sequence", [](R& r) { r.mutable_sampling()->add_bad_token_sequences(); },
                "sampling.bad_token_sequences[0]", "has 0 tokens"},
        Refused{"preset",
                [](R& r) { r.mutable_sampling()->set_preset(static_cast<v1::SamplingPreset>(77)); },
                "sampling.preset", "is 77"},
        Refused{"stops_10000",
                [](R& r) {
                  for (int i = 0; i < 10000; ++i) r.mutable_stop()->add_stop("x");
                },
                "stop.stop", "has 10000 texts; the limit is 16"},
        Refused{"min_above_max",
                [](R& r) {
                  r.mutable_stop()->set_min_tokens(9);
                  r.mutable_stop()->set_max_tokens(8);
                },
                "stop.min_tokens", "is 9; stop.max_tokens is 8"},
        Refused{"min_above_context", [](R& r) { r.mutable_stop()->set_min_tokens(1000); },
                "stop.min_tokens", "is 1000; stop.max_tokens is "},
        Refused{"time_zero", [](R& r) { r.mutable_stop()->set_time_limit_ms(0); },
                "stop.time_limit_ms", "is 0"},
        Refused{"sequence_id", [](R& r) { r.mutable_stop()->add_stop_sequences()->add_ids(512); },
                "stop.stop_sequences[0].ids[0]", "is 512"},
        Refused{"logprobs", [](R& r) { r.mutable_sampling()->set_logprobs(1000000000); },
                "sampling.logprobs", "is 1000000000; the limit is 20"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Stop, RefusedFields,
    ::testing::Values(Refused{"max_tokens_zero", [](R& r) { r.mutable_stop()->set_max_tokens(0); },
                              "stop.max_tokens", "is 0"},
                      Refused{"max_tokens_beyond",
                              [](R& r) { r.mutable_stop()->set_max_tokens(97); }, "stop.max_tokens",
                              "is 97; the context of 100 tokens leaves 96 after the prompt's 4"},
                      Refused{"ten_thousand_texts",
                              [](R& r) {
                                for (int i = 0; i < 10000; ++i) r.mutable_stop()->add_stop("x");
                              },
                              "stop.stop", "has 10000 texts; the limit is 16"},
                      Refused{"empty_text", [](R& r) { r.mutable_stop()->add_stop(""); },
                              "stop.stop[0]", "has 0 bytes; it must have 1 to 256"},
                      Refused{"long_text",
                              [](R& r) { r.mutable_stop()->add_stop(std::string(257, 'x')); },
                              "stop.stop[0]", "has 257 bytes"},
                      Refused{"many_ids",
                              [](R& r) {
                                for (uint32_t i = 0; i < 65; ++i)
                                  r.mutable_stop()->add_stop_token_ids(i);
                              },
                              "stop.stop_token_ids", "has 65 ids; the limit is 64"},
                      Refused{"unknown_id", [](R& r) { r.mutable_stop()->add_stop_token_ids(600); },
                              "stop.stop_token_ids[0]", "is 600; the vocabulary has 512 tokens"}),
    [](const auto& test) { return test.param.name; });

TEST(Validation, FillsInDefaults) {
  const auto request = Validate(Valid(), *MakeTextModel());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->prompt, (std::vector<TokenId>{FakeTokenizer::kPrefix, 'a', 'b', 'c'}));
  EXPECT_EQ(request->max_tokens, 96u);  // less than 512 are left
  EXPECT_EQ(request->request_id.size(), 16u);
  EXPECT_EQ(request->stop_tokens, std::vector<TokenId>{FakeTokenizer::kEnd});
  EXPECT_EQ(request->sampling.temperature(), 0);
  EXPECT_EQ(request->sampling.top_p(), 1);
  EXPECT_EQ(request->sampling.repetition_penalty(), 1);
  EXPECT_TRUE(request->sampling.has_top_k());
  EXPECT_TRUE(request->sampling.has_seed());
  EXPECT_FALSE(request->sampling.has_logprobs());
  EXPECT_NE(request->sampling.seed(), Validate(Valid(), *MakeTextModel())->sampling.seed());
}

// The router names a prefix as workers do, under the tenant's salt.
TEST(Validation, NamesThePromptsPrefixesUnlessCachesAreNotToBeUsed) {
  v1::GenerateRequest request = Valid();
  request.set_prompt(std::string(70, 'x'));
  const auto plain = Validate(request, *MakeTextModel());
  request.set_cache_salt("org_1");
  const auto salted = Validate(request, *MakeTextModel());
  request.set_no_prefix_cache(true);
  const auto none = Validate(request, *MakeTextModel());
  EXPECT_EQ(plain->prefix, prefix::DigestChain("", plain->prompt));
  EXPECT_EQ(plain->prefix.size(), 2u);
  EXPECT_EQ(salted->prefix, prefix::DigestChain("org_1", plain->prompt));
  EXPECT_EQ(salted->cache_salt, "org_1");
  EXPECT_TRUE(none->prefix.empty());
  EXPECT_FALSE(none->prefix_cache);
}

TEST(Validation, WindowKeepsARequestOutOfPrefixCaches) {
  v1::GenerateRequest request = Valid();
  request.set_prompt(std::string(70, 'x'));
  request.set_window(64);
  request.set_window_sinks(32);
  request.set_window_stride(128);
  request.add_window_keep()->set_begin(32);
  request.mutable_window_keep(0)->set_end(64);
  const auto windowed = Validate(request, *MakeTextModel());
  ASSERT_TRUE(windowed.ok()) << windowed.status();
  EXPECT_EQ(windowed->window.tokens, 64u);
  EXPECT_EQ(windowed->window.sinks, 32u);
  EXPECT_EQ(windowed->window.stride, 128u);
  EXPECT_EQ(windowed->window.keep[0], (kv::TokenRange{32, 64}));
  EXPECT_FALSE(windowed->prefix_cache);
  EXPECT_TRUE(windowed->prefix.empty());
}

TEST(Validation, TakesEveryLimitItself) {
  v1::GenerateRequest request = Valid();
  request.set_model("toy");
  request.set_request_id(std::string(128, 'x'));
  request.set_tenant(std::string(128, 't'));
  request.set_priority(-4);
  request.set_cache_salt(std::string(128, 'x'));
  request.mutable_sampling()->set_temperature(100);
  request.mutable_sampling()->set_top_p(1e-4f);
  request.mutable_sampling()->set_top_k(2147483647);
  request.mutable_sampling()->set_repetition_penalty(1e-9f);
  request.mutable_sampling()->set_logprobs(20);
  request.mutable_sampling()->set_seed(~0ull);
  request.mutable_stop()->set_max_tokens(96);
  for (int i = 0; i < 16; ++i) request.mutable_stop()->add_stop(std::string(256, 'x'));
  for (uint32_t i = 0; i < 64; ++i) request.mutable_stop()->add_stop_token_ids(511);
  const auto valid = Validate(request, *MakeTextModel());
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->sampling.seed(), ~0ull);
  EXPECT_EQ(valid->stops.size(), 16u);
}

TEST(Validation, LongestPromptLeavesOneToken) {
  v1::GenerateRequest request = Valid();
  request.set_prompt(std::string(98, 'x'));
  EXPECT_EQ(Validate(request, *MakeTextModel())->max_tokens, 1u);
}

TEST(Validation, IgnoreEosKeepsOnlyTheClientsStopTokens) {
  v1::GenerateRequest request = Valid();
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_stop()->add_stop_token_ids(7);
  EXPECT_EQ(Validate(request, *MakeTextModel())->stop_tokens, std::vector<TokenId>{7});
}

TEST(Validation, UnknownModelIsNotFoundAndNamesTheServedOne) {
  v1::GenerateRequest request = Valid();
  request.set_model("gpt");
  const absl::Status status = Validate(request, *MakeTextModel()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("\"toy\""), std::string::npos) << status;
}

TEST(Validation, ControlTokensSpelledInATextStayText) {
  v1::GenerateRequest request = Valid();
  request.set_prompt("</s>");
  EXPECT_EQ(Validate(request, *MakeTextModel())->prompt,
            (std::vector<TokenId>{FakeTokenizer::kPrefix, '<', '/', 's', '>'}));
}

TEST(Validation, WithoutATokenizerOnlyIdsAreTaken) {
  const auto model = MakeIdsModel();
  EXPECT_EQ(rpc::FieldOf(Validate(Valid(), *model).status()), "prompt");
  v1::ChatRequest chat;
  chat.add_messages()->set_role("user");
  EXPECT_EQ(rpc::FieldOf(Validate(chat, *model).status()), "messages");
  v1::GenerateRequest ids;
  ids.mutable_prompt_ids()->add_ids(5);
  EXPECT_TRUE(Validate(ids, *model).ok());
  ids.mutable_stop()->add_stop("x");
  EXPECT_EQ(rpc::FieldOf(Validate(ids, *model).status()), "stop.stop");
  EXPECT_EQ(rpc::FieldOf(ValidateDetokenize({}, *model).status()), "token_ids");
}

v1::ChatRequest Conversation(
    const std::vector<std::pair<std::string, std::string>>& role_and_content) {
  v1::ChatRequest request;
  for (const auto& [role, content] : role_and_content) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role(role);
    message->set_content(content);
  }
  return request;
}

TEST(Validation, ConversationIsCheckedMessageByMessage) {
  const auto model = MakeTextModel();
  const auto field = [&](const v1::ChatRequest& request) {
    return rpc::FieldOf(Validate(request, *model).status()).value_or("none");
  };
  EXPECT_EQ(field(Conversation({})), "messages");
  EXPECT_EQ(field(Conversation({{"user", "a"}, {"robot", "b"}})), "messages[1].role");
  EXPECT_EQ(field(Conversation({{"user", "a"}, {"assistant", "b"}})), "messages[1].role");
  EXPECT_EQ(field(Conversation({{"system", "a"}, {"user", ""}})), "messages[1].content");
  v1::ChatRequest many;
  for (int i = 0; i < 4097; ++i) many.add_messages()->set_role("user");
  EXPECT_EQ(field(many), "messages");
  EXPECT_EQ(Validate(Conversation({{"system", "a"}, {"user", "b"}}), *model)->prompt,
            (std::vector<TokenId>{FakeTokenizer::kPrefix, 'a', 'b'}));
}

TEST(Validation, TokenizeGivesTheIdsThatGenerateAndChatSend) {
  const auto model = MakeTextModel();
  v1::TokenizeRequest text;
  text.set_prompt("abc");
  EXPECT_EQ(*ValidateTokenize(text, *model), Validate(Valid(), *model)->prompt);
  v1::TokenizeRequest conversation;
  *conversation.mutable_conversation()->mutable_messages() =
      Conversation({{"user", "b"}}).messages();
  EXPECT_EQ(*ValidateTokenize(conversation, *model),
            Validate(Conversation({{"user", "b"}}), *model)->prompt);
  EXPECT_EQ(rpc::FieldOf(ValidateTokenize({}, *model).status()), "prompt");
}

TEST(Validation, DetokenizeRefusesIdsOutsideTheVocabulary) {
  v1::DetokenizeRequest request;
  request.add_token_ids(3);
  request.add_token_ids(4000000000u);
  const absl::Status status = ValidateDetokenize(request, *MakeTextModel()).status();
  EXPECT_EQ(rpc::FieldOf(status), "token_ids[1]");
}

TEST(Validate, PromptLogprobsOfAHugePromptNameBothFields) {
  const auto model = MakeTextModel();
  model->context = 100000;
  v1::GenerateRequest request;
  for (int i = 0; i < 3000; ++i) request.mutable_prompt_ids()->add_ids(1);
  request.mutable_sampling()->set_prompt_logprobs(9);
  EXPECT_TRUE(Validate(request, *model).ok());
  request.mutable_sampling()->set_prompt_logprobs(10);
  const absl::Status status = Validate(request, *model).status();
  EXPECT_EQ(rpc::FieldOf(status), "sampling.prompt_logprobs");
  EXPECT_NE(status.message().find("prompt_ids.ids has 3000 tokens"), std::string::npos) << status;
}

TEST(Validate, PresetFillsInWhatIsNotSet) {
  v1::GenerateRequest request = Valid();
  request.mutable_sampling()->set_preset(v1::SAMPLING_PRESET_CHATGLM2);
  request.mutable_sampling()->set_top_p(0.5f);
  const auto valid = Validate(request, *MakeTextModel());
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->sampling.temperature(), 0.8f);
  EXPECT_EQ(valid->sampling.top_p(), 0.5f);
  EXPECT_EQ(valid->sampling.preset(), v1::SAMPLING_PRESET_UNSPECIFIED);
}

TEST(Validate, BadWordsBecomeTheTokensTheyMayBeMadeOf) {
  v1::GenerateRequest request = Valid();
  request.mutable_sampling()->add_bad_words("no");
  const auto valid = Validate(request, *MakeTextModel());
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_TRUE(valid->sampling.bad_words().empty());
  ASSERT_EQ(valid->sampling.bad_token_sequences_size(), 2);  // "no" and " no"
  EXPECT_EQ(valid->sampling.bad_token_sequences(0).ids_size(), 3);
  EXPECT_EQ(valid->sampling.bad_token_sequences(1).ids_size(), 2);
}

TEST(Validate, ConstraintsAreHandedOnAndNeedATokenizer) {
  v1::GenerateRequest request;
  request.mutable_prompt_ids()->add_ids(5);
  request.mutable_constraint()->set_json_schema(R"({"type":"integer"})");
  const auto valid = Validate(request, *MakeTextModel());
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->constraint->json_schema(), R"({"type":"integer"})");
  EXPECT_EQ(valid->constraint_bytes, 1u);
  const auto refused = Validate(request, *MakeIdsModel());
  EXPECT_EQ(rpc::FieldOf(refused.status()), "constraint.json_schema");
  EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr("needs a tokenizer"));
}

}  // namespace
}  // namespace baton::router
