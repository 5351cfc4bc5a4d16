// SPDX-License-Identifier: Apache-2.0
#include "common/worker/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "common/rpc/status.h"

namespace baton::worker {
namespace {

constexpr AssignLimits kPrefill{
    .role = WorkerRole::kPrefill, .vocabulary_size = 1000, .context_tokens = 4096};
constexpr AssignLimits kDecode{
    .role = WorkerRole::kDecode, .vocabulary_size = 1000, .context_tokens = 4096};

v1::Assign GoodAssign() {
  v1::Assign assign;
  assign.set_sequence_key(42);
  assign.set_request_id("r1");
  for (uint32_t id : {5u, 6u, 999u}) assign.add_prompt_ids(id);
  assign.mutable_sampling()->set_temperature(0.5f);
  assign.mutable_sampling()->set_top_p(0.9f);
  assign.mutable_sampling()->set_seed(17);
  assign.set_max_tokens(10);
  assign.add_stop_token_ids(2);
  assign.set_role(v1::Assign::ROLE_PREFILL);
  assign.set_handoff_key(std::string(16, 'k'));
  assign.set_cache_salt("tenant");
  assign.set_no_prefix_cache(true);
  v1::HandoffEndpoint* endpoint = assign.add_handoff_endpoints();
  endpoint->set_transport("tcp");
  endpoint->set_address("127.0.0.1:1");
  return assign;
}

TEST(SpecFromAssign, TakesEveryFieldOver) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  v1::Assign assign = GoodAssign();
  assign.set_deadline_ms(2500);
  assign.set_tenant("gold");
  assign.set_foreign_kv(true);
  assign.set_priority(-3);
  assign.set_window(128);
  assign.set_window_sinks(32);
  assign.set_window_stride(64);
  assign.add_window_keep()->set_begin(160);
  assign.mutable_window_keep(0)->set_end(192);
  const auto spec = SpecFromAssign(assign, 3, kPrefill, now);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->ref, (engine::SequenceRef{.owner = 3, .key = 42}));
  EXPECT_EQ(spec->role, engine::Role::kPrefill);
  EXPECT_THAT(spec->prompt, ::testing::ElementsAre(5, 6, 999));
  EXPECT_FLOAT_EQ(spec->sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(spec->sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(spec->sampling.repetition_penalty, 1);
  EXPECT_EQ(spec->sampling.seed, 17);
  EXPECT_FALSE(spec->sampling.logprobs.has_value());
  EXPECT_EQ(spec->max_tokens, 10);
  EXPECT_THAT(spec->stop_tokens, ::testing::ElementsAre(2));
  EXPECT_EQ(spec->deadline, now + absl::Milliseconds(2500));
  EXPECT_EQ(spec->handoff_key, std::string(16, 'k'));
  EXPECT_EQ(spec->tenant, "gold");
  EXPECT_TRUE(spec->swap_only);
  EXPECT_EQ(spec->priority, -3);
  EXPECT_EQ(spec->cache_salt, "tenant");
  EXPECT_FALSE(spec->prefix_cache);
  EXPECT_EQ(spec->window.tokens, 128u);
  EXPECT_EQ(spec->window.sinks, 32u);
  EXPECT_EQ(spec->window.stride, 64u);
  EXPECT_EQ(spec->window.keep[0], (kv::TokenRange{160, 192}));
}

TEST(SpecFromAssign, WindowIsRefusedByWorkersThatTakeNone) {
  AssignLimits limits = kPrefill;
  limits.windows = false;
  v1::Assign assign = GoodAssign();
  EXPECT_TRUE(SpecFromAssign(assign, 1, limits, absl::Now()).ok());
  assign.set_window(64);
  const auto spec = SpecFromAssign(assign, 1, limits, absl::Now());
  EXPECT_THAT(std::string(spec.status().message()), ::testing::HasSubstr("is 64; this worker"));
}

TEST(SpecFromAssign, ConstraintsAreCompiledOnceAndCheckedAgain) {
  const auto load = []() -> grammar::MatcherCache::Vocabulary {
    const std::vector<grammar::TokenTrie::Token> tokens{{"a", false}, {"b", false}};
    return std::make_shared<const grammar::TokenTrie>(tokens, false);
  };
  grammar::MatcherCache cache(load);
  AssignLimits limits = kPrefill;
  v1::Assign assign = GoodAssign();
  assign.mutable_constraint()->set_regex("a+");
  const auto none = SpecFromAssign(assign, 1, limits, absl::Now());
  EXPECT_THAT(std::string(none.status().message()), ::testing::HasSubstr("has no tokenizer"));
  limits.constraints = &cache;
  const auto first = SpecFromAssign(assign, 1, limits, absl::Now());
  const auto second = SpecFromAssign(assign, 1, limits, absl::Now());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->constraint, nullptr);
  EXPECT_EQ(first->constraint, second->constraint);
  assign.mutable_constraint()->set_regex("a(");
  EXPECT_EQ(rpc::FieldOf(SpecFromAssign(assign, 1, limits, absl::Now()).status()), "constraint");
}

TEST(SpecFromAssign, AbsentDeadlineIsNone) {
  v1::Assign assign = GoodAssign();
  for (const uint64_t none : {uint64_t{0}, std::numeric_limits<uint64_t>::max()}) {
    assign.set_deadline_ms(none);
    const auto spec = SpecFromAssign(assign, 1, kPrefill, absl::Now());
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(spec->deadline, absl::InfiniteFuture());
  }
}

TEST(SpecFromAssign, RefusalNamesTheField) {
  struct Case {
    const char* field;
    std::function<void(v1::Assign&)> spoil;
  };
  const Case cases[] = {
      {"role", [](auto& a) { a.set_role(v1::Assign::ROLE_UNSPECIFIED); }},
      {"role", [](auto& a) { a.set_role(v1::Assign::ROLE_DECODE); }},
      {"role", [](auto& a) { a.set_role(static_cast<v1::Assign::Role>(77)); }},
      {"request_id", [](auto& a) { a.set_request_id(std::string(129, 'x')); }},
      {"cache_salt", [](auto& a) { a.set_cache_salt(std::string(129, 'x')); }},
      {"window", [](auto& a) { a.set_window(33); }},
      {"window", [](auto& a) { a.set_window_sinks(32); }},
      {"window", [](auto& a) { a.set_window_stride(64); }},
      {"prompt_ids", [](auto& a) { a.clear_prompt_ids(); }},
      {"prompt_ids", [](auto& a) { a.set_prompt_ids(1, 1000); }},
      {"max_tokens", [](auto& a) { a.set_max_tokens(0); }},
      {"max_tokens", [](auto& a) { a.set_max_tokens(4094); }},
      {"max_tokens", [](auto& a) { a.set_max_tokens(std::numeric_limits<uint32_t>::max()); }},
      {"stop_token_ids",
       [](auto& a) {
         for (int i = 0; i < 300; ++i) a.add_stop_token_ids(1);
       }},
      {"handoff_key", [](auto& a) { a.clear_handoff_key(); }},
      {"handoff_key", [](auto& a) { a.set_handoff_key("short"); }},
      {"handoff_endpoints", [](auto& a) { a.clear_handoff_endpoints(); }},
      {"handoff_endpoints",
       [](auto& a) { a.mutable_handoff_endpoints(0)->set_address(std::string(600, 'a')); }},
      {"sampling.temperature", [](auto& a) { a.mutable_sampling()->set_temperature(NAN); }},
      {"sampling.temperature", [](auto& a) { a.mutable_sampling()->set_temperature(-1); }},
      {"sampling.top_p", [](auto& a) { a.mutable_sampling()->set_top_p(0); }},
      {"sampling.top_p", [](auto& a) { a.mutable_sampling()->set_top_p(NAN); }},
      {"sampling.repetition_penalty",
       [](auto& a) { a.mutable_sampling()->set_repetition_penalty(INFINITY); }},
      {"sampling.logprobs", [](auto& a) { a.mutable_sampling()->set_logprobs(21); }},
  };
  for (const Case& one : cases) {
    v1::Assign assign = GoodAssign();
    one.spoil(assign);
    const auto spec = SpecFromAssign(assign, 1, kPrefill, absl::Now());
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << one.field;
    EXPECT_EQ(rpc::FieldOf(spec.status()).value_or("none"), one.field) << spec.status();
  }
}

TEST(SpecFromAssign, DecodeWorkerTakesDecodeAndWhole) {
  v1::Assign assign = GoodAssign();
  assign.clear_handoff_endpoints();
  assign.set_role(v1::Assign::ROLE_DECODE);
  EXPECT_TRUE(SpecFromAssign(assign, 1, kDecode, absl::Now()).ok());
  assign.set_role(v1::Assign::ROLE_WHOLE);
  assign.clear_handoff_key();
  EXPECT_TRUE(SpecFromAssign(assign, 1, kDecode, absl::Now()).ok());
  assign.set_role(v1::Assign::ROLE_PREFILL);
  EXPECT_FALSE(SpecFromAssign(assign, 1, kDecode, absl::Now()).ok());
}

TEST(SpecFromAssign, TakesEveryStrategyOver) {
  v1::Assign assign = GoodAssign();
  EXPECT_EQ(SpecFromAssign(assign, 1, kPrefill, absl::Now())->choices, 1u);
  assign.mutable_decoding()->set_n(2);
  assign.mutable_decoding()->set_best_of(5);
  EXPECT_EQ(SpecFromAssign(assign, 1, kPrefill, absl::Now())->choices, 5u);
  assign.set_min_tokens(3);
  v1::Phase* phase = assign.mutable_decoding()->add_phases();
  phase->mutable_beam()->set_width(3);
  phase->mutable_beam()->set_length_penalty(0.5f);
  phase->mutable_beam()->set_early_stopping(v1::EARLY_STOPPING_NEVER);
  phase->set_max_tokens(6);
  phase->add_until_token_ids(9);
  phase->mutable_sampling()->set_temperature(0.25f);
  auto spec = SpecFromAssign(assign, 1, kPrefill, absl::Now());
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->phases.size(), 1u);
  EXPECT_EQ(spec->phases[0].beam->width, 3u);
  EXPECT_FLOAT_EQ(spec->phases[0].beam->length_penalty, 0.5f);
  EXPECT_EQ(spec->phases[0].beam->early_stopping, sampling::EarlyStopping::kNever);
  EXPECT_EQ(spec->phases[0].max_tokens, 6u);
  EXPECT_THAT(spec->phases[0].until_tokens, ::testing::ElementsAre(9));
  EXPECT_FLOAT_EQ(spec->phases[0].sampling.temperature, 0.25f);
  EXPECT_EQ(spec->phases[0].sampling.min_tokens, 3u);
  assign.mutable_decoding()->clear_best_of();
  assign.mutable_decoding()->clear_phases();
  assign.mutable_decoding()->mutable_beam()->set_width(4);
  spec = SpecFromAssign(assign, 1, kPrefill, absl::Now());
  EXPECT_EQ(spec->choices, 2u);
  EXPECT_EQ(spec->beam->width, 4u);
}

TEST(SpecFromAssign, StrategiesOutOfRangeAreRefusedByField) {
  v1::Assign assign = GoodAssign();
  assign.mutable_decoding()->mutable_beam()->set_width(33);
  EXPECT_EQ(rpc::FieldOf(SpecFromAssign(assign, 1, kPrefill, absl::Now()).status()),
            "decoding.beam.width");
  assign = GoodAssign();
  for (int i = 0; i < 9; ++i) assign.mutable_decoding()->add_phases();
  EXPECT_EQ(rpc::FieldOf(SpecFromAssign(assign, 1, kPrefill, absl::Now()).status()),
            "decoding.phases");
  assign = GoodAssign();
  assign.mutable_decoding()->add_phases()->mutable_sampling()->set_top_p(3);
  EXPECT_EQ(rpc::FieldOf(SpecFromAssign(assign, 1, kPrefill, absl::Now()).status()),
            "decoding.phases[0].sampling.top_p");
}

}  // namespace
}  // namespace baton::worker
