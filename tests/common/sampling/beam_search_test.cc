// SPDX-License-Identifier: Apache-2.0
// Beams against an exhaustive search, and against a plain transcription of
// the rules over whole matrices of scores.
#include "common/sampling/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/common/sampling/beam_reference.h"

namespace baton::sampling {
namespace {

using testing::ToyModel;

// Runs a search over the toy model as an engine would.
std::vector<BeamSearch::Hypothesis> Search(const ToyModel& model, const BeamParams& beam,
                                           const Params& params, std::vector<TokenId> ends,
                                           uint32_t most_tokens) {
  BeamSearch search(beam, ends, most_tokens);
  while (!search.done()) {
    std::vector<BeamRow> rows;
    for (const BeamSearch::Beam& live : search.live()) {
      const std::vector<float> logits = model.Logits(live.tokens);
      const std::vector<TokenId> tokens = model.WithPrompt(live.tokens);
      const Position position{.tokens = tokens,
                              .output_index = static_cast<uint32_t>(live.tokens.size()),
                              .end_tokens = ends};
      auto row = ExpandBeam(logits, static_cast<uint32_t>(logits.size()), position, params,
                            search.candidates_per_row());
      EXPECT_TRUE(row.ok()) << row.status();
      rows.push_back(*std::move(row));
    }
    const size_t before = search.live().size();
    for (const uint32_t parent : search.Advance(rows)) EXPECT_LT(parent, before);
  }
  return search.finished();
}

void ExpectEqual(const std::vector<BeamSearch::Hypothesis>& got,
                 const std::vector<testing::Scored>& expected, size_t count) {
  ASSERT_GE(got.size(), std::min(count, expected.size()));
  for (size_t i = 0; i < std::min(count, expected.size()); ++i) {
    EXPECT_EQ(got[i].beam.tokens, expected[i].tokens) << i;
    EXPECT_NEAR(got[i].score, expected[i].score, 1e-5) << i;
    EXPECT_EQ(got[i].beam.logprobs.size(), got[i].beam.tokens.size());
  }
}

// Two tokens that go on and one that ends: a width of 32 keeps every line of
// five tokens, so that what is found is the best there is.
TEST(BeamSearch, FindsWhatAnExhaustiveSearchFinds) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const ToyModel model(3, seed, /*levels=*/0);
    for (const float penalty : {-1.0f, 0.0f, 0.6f, 1.0f, 2.0f}) {
      for (const float repetition : {1.0f, 1.3f}) {
        Params params;
        params.repetition_penalty = repetition;
        const BeamParams beam{32, penalty, EarlyStopping::kNever};
        SCOPED_TRACE(::testing::Message() << seed << " " << penalty << " " << repetition);
        ExpectEqual(Search(model, beam, params, {2}, 5),
                    testing::Exhaustive(model, params, {2}, penalty, 5), 8);
      }
    }
  }
}

struct Settings {
  uint32_t vocabulary, width, length;
  std::vector<TokenId> ends;
};

TEST(BeamSearch, KeepsTheRulesForEveryPenaltyAndWayOfStopping) {
  const Settings all[] = {
      {8, 3, 5, {2}}, {8, 1, 6, {0}}, {5, 4, 6, {1, 3}}, {8, 5, 7, {}}, {4, 6, 4, {3}}};
  for (uint32_t seed = 0; seed < 8; ++seed) {
    for (const auto& [vocabulary, width, length, ends] : all) {
      const ToyModel model(vocabulary, seed, /*levels=*/0);
      for (const float penalty : {-1.0f, 0.0f, 1.0f, 1.7f}) {
        for (const auto stopping :
             {EarlyStopping::kHeuristic, EarlyStopping::kAlways, EarlyStopping::kNever}) {
          Params params;
          params.repetition_penalty = seed % 2 == 0 ? 1.0f : 1.2f;
          params.min_tokens = seed % 3 == 0 ? 2 : 0;
          if (seed % 5 == 0) params.logit_bias = {{1, 0.5f}};
          if (seed % 7 == 0) params.bad_sequences = {{0}, {1, 1}};
          const BeamParams beam{width, penalty, stopping};
          SCOPED_TRACE(::testing::Message() << seed << " " << vocabulary << " " << width << " "
                                            << penalty << " " << static_cast<int>(stopping));
          ExpectEqual(Search(model, beam, params, ends, length),
                      testing::ByTheRules(model, beam, params, ends, length), width);
        }
      }
    }
  }
}

// Logits of few levels: most sums are equal.
TEST(BeamSearch, TiesGoToTheEarlierBeamAndTheLowerToken) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const ToyModel model(6, seed, /*levels=*/2);
    for (const uint32_t width : {2u, 3u, 6u}) {
      const BeamParams beam{width, 1, EarlyStopping::kHeuristic};
      SCOPED_TRACE(::testing::Message() << seed << " " << width);
      ExpectEqual(Search(model, beam, {}, {5}, 5), testing::ByTheRules(model, beam, {}, {5}, 5),
                  width);
    }
  }
  const ToyModel flat(6, 1, /*levels=*/1);
  const auto found = Search(flat, {3, 1, EarlyStopping::kHeuristic}, {}, {}, 3);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_THAT(found[0].beam.tokens, ::testing::ElementsAre(0, 0, 0));
  EXPECT_THAT(found[1].beam.tokens, ::testing::ElementsAre(0, 0, 1));
  EXPECT_THAT(found[2].beam.tokens, ::testing::ElementsAre(0, 0, 2));
}

// The bound of "never" is the greatest length, that of the heuristic the length
// so far: only the former waits for a longer and better line.
TEST(BeamSearch, NeverWaitsForALongerLineThatTheHeuristicGivesUp) {
  size_t better = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const ToyModel model(4, seed, 0);
    const auto early = Search(model, {2, 2, EarlyStopping::kHeuristic}, {}, {3}, 8);
    const auto late = Search(model, {2, 2, EarlyStopping::kNever}, {}, {3}, 8);
    EXPECT_GE(late.front().score, early.front().score);
    better += late.front().score > early.front().score ? 1 : 0;
  }
  EXPECT_GT(better, 0u);
}

TEST(BeamSearch, OneBeamIsGreedy) {
  const ToyModel model(8, 3, 0);
  std::vector<TokenId> greedy;
  while (greedy.size() < 6) {
    const std::vector<float> logits = model.Logits(greedy);
    greedy.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  EXPECT_EQ(Search(model, {1, 1, EarlyStopping::kHeuristic}, {}, {}, 6)[0].beam.tokens, greedy);
}

TEST(ExpandBeam, GivesTheModelsOwnLogProbabilitiesBesideTheValues) {
  const std::vector<float> logits = {1, 3, 2, 0};
  Params params;
  params.logprobs = 2;
  params.repetition_penalty = 2;
  const std::vector<TokenId> tokens = {1};
  const auto row = ExpandBeam(logits, 4, {.tokens = tokens, .output_index = 1}, params, 3);
  ASSERT_TRUE(row.ok());
  ASSERT_EQ(row->candidates.size(), 3u);
  const double norm = std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + 1);
  EXPECT_EQ(row->candidates[0].token, 1u);  // 2 (3 - norm) is still above 2 - norm
  EXPECT_NEAR(row->candidates[0].value, 2 * (3 - norm), 1e-6);
  EXPECT_NEAR(row->candidates[0].logprob, 3 - norm, 1e-6);
  EXPECT_EQ(row->candidates[1].token, 2u);
  EXPECT_NEAR(row->candidates[1].value, 2 - norm, 1e-6);
  ASSERT_EQ(row->top.size(), 2u);
  EXPECT_EQ(row->top[1].first, 2u);
}

TEST(ExpandBeam, RefusesWhatIsNotFiniteAndLeavesOutWhatIsBanned) {
  std::vector<float> logits = {1, 2, 3};
  Params params;
  params.bad_sequences = {{2}};
  auto row = ExpandBeam(logits, 3, {}, params, 3);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->candidates.size(), 2u);
  params.bad_sequences = {{0}, {1}, {2}};
  EXPECT_EQ(ExpandBeam(logits, 3, {}, params, 3).status().code(), absl::StatusCode::kInternal);
  logits[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ExpandBeam(logits, 3, {}, {}, 3).status().code(), absl::StatusCode::kInternal);
}

TEST(BeamParams, ValuesOutsideTheirRangesAreNamed) {
  EXPECT_FALSE(FindBadParam(BeamParams{}).has_value());
  EXPECT_EQ(FindBadParam(BeamParams{.width = 0})->field, "width");
  EXPECT_EQ(FindBadParam(BeamParams{.width = 33})->field, "width");
  EXPECT_EQ(FindBadParam(BeamParams{.width = 2, .length_penalty = NAN})->field, "length_penalty");
}

}  // namespace
}  // namespace baton::sampling
