// SPDX-License-Identifier: Apache-2.0
// Combinations that make no sense are refused by both fields; those that do are
// made whole for the workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/rpc/status.h"
#include "router/validation.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

// 4 prompt tokens of a context of 100.
v1::GenerateRequest Valid() {
  v1::GenerateRequest request;
  request.set_prompt("abc");
  return request;
}

using D = v1::DecodingParams;
using R = v1::GenerateRequest;

struct Refused {
  std::string name;
  std::function<void(R&, D&)> change;
  std::string field;                  // that the error names
  std::vector<std::string> problems;  // that the message holds
};

class RefusedDecoding : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedDecoding, NamesBothFieldsWithTheirValues) {
  R request = Valid();
  GetParam().change(request, *request.mutable_decoding());
  const absl::Status status = Validate(request, *MakeTextModel()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(rpc::FieldOf(status), GetParam().field) << status;
  for (const std::string& problem : GetParam().problems) {
    EXPECT_NE(status.message().find(problem), std::string::npos) << status;
  }
}

void AddPhases(D& decoding, std::vector<uint32_t> max_tokens) {
  for (const uint32_t tokens : max_tokens) decoding.add_phases()->set_max_tokens(tokens);
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedDecoding,
    ::testing::Values(
        Refused{"n_zero", [](R&, D& d) { d.set_n(0); }, "decoding.n", {"is 0; it must be 1 to 32"}},
        Refused{"n_millions", [](R&, D& d) { d.set_n(5000000); }, "decoding.n", {"is 5000000"}},
        Refused{"best_of_large",
                [](R&, D& d) { d.set_best_of(33); },
                "decoding.best_of",
                {"is 33; it must be 1 to 32"}},
        Refused{"best_of_below_n",
                [](R&, D& d) {
                  d.set_n(3);
                  d.set_best_of(2);
                },
                "decoding.best_of",
                {"is 2; decoding.n is 3"}},
        Refused{"beam_with_best_of_below_n",
                [](R&, D& d) {
                  d.set_n(3);
                  d.set_best_of(2);
                  d.mutable_beam()->set_width(4);
                },
                "decoding.best_of",
                {"is 2; decoding.n is 3"}},
        Refused{"width_below_n",
                [](R&, D& d) {
                  d.set_n(3);
                  d.mutable_beam()->set_width(2);
                },
                "decoding.beam.width",
                {"is 2; decoding.n is 3"}},
        Refused{"width_zero",
                [](R&, D& d) { d.mutable_beam(); },
                "decoding.beam.width",
                {"is 0; it must be 1 to 32"}},
        Refused{"width_large",
                [](R&, D& d) { d.mutable_beam()->set_width(1000000); },
                "decoding.beam.width",
                {"is 1000000; it must be 1 to 32"}},
        Refused{"length_penalty",
                [](R&, D& d) {
                  d.mutable_beam()->set_width(2);
                  d.mutable_beam()->set_length_penalty(11);
                },
                "decoding.beam.length_penalty",
                {"is 11; it must be in [-10, 10]"}},
        Refused{"early_stopping",
                [](R&, D& d) {
                  d.mutable_beam()->set_width(2);
                  d.mutable_beam()->set_early_stopping(static_cast<v1::EarlyStopping>(9));
                },
                "decoding.beam.early_stopping",
                {"is 9; it must be 0 to 3"}},
        Refused{"beam_and_best_of",
                [](R&, D& d) {
                  d.mutable_beam()->set_width(4);
                  d.set_best_of(4);
                },
                "decoding.best_of",
                {"is 4 and decoding.beam.width is 4"}},
        Refused{"beam_and_temperature",
                [](R& r, D& d) {
                  d.mutable_beam()->set_width(4);
                  r.mutable_sampling()->set_temperature(0.5f);
                },
                "sampling.temperature",
                {"is 0.5 and decoding.beam.width is 4"}},
        Refused{"beam_and_phases",
                [](R&, D& d) {
                  d.mutable_beam()->set_width(4);
                  d.add_phases();
                },
                "decoding.phases",
                {"has 1 phases and decoding.beam.width is 4"}},
        Refused{"nine_phases",
                [](R&, D& d) {
                  AddPhases(d, {1, 1, 1, 1, 1, 1, 1, 1, 1});
                },
                "decoding.phases",
                {"has 9 phases; the limit is 8"}},
        Refused{"endless_phase",
                [](R&, D& d) {
                  AddPhases(d, {0, 0});
                },
                "decoding.phases[0].max_tokens",
                {"is 0", "decoding.phases[0].until_token_ids is empty"}},
        Refused{"phase_that_never_begins",
                [](R& r, D& d) {
                  AddPhases(d, {3, 4, 0});
                  r.mutable_stop()->set_max_tokens(7);
                },
                "decoding.phases[1].max_tokens",
                {"is 4", "stop.max_tokens is 7", "decoding.phases[2] never begins"}},
        Refused{"until_in_the_last_phase",
                [](R&, D& d) { d.add_phases()->add_until_token_ids(3); },
                "decoding.phases[0].until_token_ids",
                {"has 1 ids", "stop.stop_token_ids"}},
        Refused{"until_outside_the_vocabulary",
                [](R&, D& d) {
                  AddPhases(d, {1, 0});
                  d.mutable_phases(0)->add_until_token_ids(512);
                },
                "decoding.phases[0].until_token_ids[0]",
                {"is 512; the vocabulary has 512"}},
        Refused{"phase_logprobs",
                [](R&, D& d) { d.add_phases()->mutable_sampling()->set_logprobs(1); },
                "decoding.phases[0].sampling.logprobs",
                {"it belongs to sampling.logprobs"}},
        Refused{"phase_sampling",
                [](R&, D& d) { d.add_phases()->mutable_sampling()->set_top_p(2); },
                "decoding.phases[0].sampling.top_p",
                {"is 2; it must be in (0, 1]"}},
        Refused{"phase_beam_and_n",
                [](R&, D& d) {
                  AddPhases(d, {1, 0});
                  d.mutable_phases(0)->mutable_beam()->set_width(3);
                  d.set_n(2);
                },
                "decoding.phases[0].beam.width",
                {"is 3 and decoding.n is 2"}},
        Refused{"phase_beam_and_best_of",
                [](R&, D& d) {
                  AddPhases(d, {1, 0});
                  d.mutable_phases(0)->mutable_beam()->set_width(3);
                  d.set_best_of(2);
                },
                "decoding.phases[0].beam.width",
                {"is 3 and decoding.best_of is 2"}},
        Refused{"phase_beam_and_window",
                [](R& r, D& d) {
                  AddPhases(d, {1, 0});
                  d.mutable_phases(0)->mutable_beam()->set_width(3);
                  r.set_window(32);
                },
                "decoding.phases[0].beam.width",
                {"is 3 and window is 32"}},
        Refused{"phase_beam_and_temperature",
                [](R&, D& d) {
                  d.add_phases()->mutable_beam()->set_width(3);
                  d.mutable_phases(0)->mutable_sampling()->set_temperature(1);
                },
                "decoding.phases[0].sampling.temperature",
                {"is 1 and decoding.phases[0].beam.width is 3"}},
        Refused{"too_much_at_once",
                [](R& r, D& d) {
                  d.set_n(24);
                  d.mutable_beam()->set_width(24);
                  r.mutable_stop()->set_max_tokens(90);
                  r.mutable_sampling()->set_logprobs(20);
                },
                "decoding.n",
                {"is 24 and stop.max_tokens is 90", "is 47520; the limit is 32768"}}),
    [](const auto& test) { return test.param.name; });

TEST(Decoding, OneAnswerIsTheDefault) {
  const auto request = Validate(Valid(), *MakeTextModel());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->choices, 1u);
  EXPECT_EQ(request->choices_made, 1u);
  EXPECT_EQ(request->width, 1u);
  EXPECT_FALSE(request->ranked());
  EXPECT_FALSE(request->searches());
}

// Ranked by log-probabilities that the client has not asked for.
TEST(Decoding, BestOfAsksTheWorkersForLogProbabilities) {
  R in = Valid();
  in.mutable_decoding()->set_n(2);
  in.mutable_decoding()->set_best_of(5);
  auto request = Validate(in, *MakeTextModel());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->width, 5u);
  EXPECT_TRUE(request->ranked());
  EXPECT_TRUE(request->hides_logprobs);
  EXPECT_TRUE(request->sampling.has_logprobs());
  EXPECT_EQ(request->decoding.best_of(), 5u);
  in.mutable_sampling()->set_logprobs(2);
  request = Validate(in, *MakeTextModel());
  EXPECT_FALSE(request->hides_logprobs);
  EXPECT_EQ(request->sampling.logprobs(), 2u);
}

TEST(Decoding, APhaseTakesFromTheRequestWhatItDoesNotSet) {
  R in = Valid();
  in.mutable_sampling()->set_preset(v1::SAMPLING_PRESET_CHATGLM2);
  in.mutable_sampling()->set_seed(7);
  in.mutable_sampling()->set_logprobs(1);
  v1::Phase* first = in.mutable_decoding()->add_phases();
  first->mutable_beam()->set_width(3);
  first->set_max_tokens(5);
  first->mutable_sampling()->set_repetition_penalty(1.5f);
  v1::Phase* second = in.mutable_decoding()->add_phases();
  second->mutable_sampling()->set_temperature(0.5f);
  const auto request = Validate(in, *MakeTextModel());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->begins_with_search);
  EXPECT_TRUE(request->searches());
  EXPECT_FALSE(request->ranked());  // it streams
  EXPECT_EQ(request->width, 3u);
  const v1::SamplingParams& search = request->decoding.phases(0).sampling();
  EXPECT_FLOAT_EQ(search.repetition_penalty(), 1.5f);
  EXPECT_EQ(search.seed(), 7u);
  const v1::SamplingParams& sampled = request->decoding.phases(1).sampling();
  EXPECT_FLOAT_EQ(sampled.temperature(), 0.5f);
  EXPECT_FLOAT_EQ(sampled.top_p(), 0.8f);
  EXPECT_EQ(sampled.logprobs(), 1u);
  EXPECT_EQ(sampled.preset(), v1::SAMPLING_PRESET_UNSPECIFIED);
}

}  // namespace
}  // namespace baton::router
