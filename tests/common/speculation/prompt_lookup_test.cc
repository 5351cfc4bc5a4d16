// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/prompt_lookup.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::speculation {
namespace {

using Tokens = std::vector<TokenId>;

Draft DraftOf(const Tokens& tokens, uint32_t most) {
  PromptLookup lookup;
  lookup.Update(tokens);
  return lookup.Propose(tokens, most);
}

TEST(PromptLookupTest, ProposesWhatFollowedTheSameRun) {
  const Draft draft = DraftOf({1, 2, 3, 4, 5, 6, 9, 2, 3}, 3);
  EXPECT_EQ(draft.tokens, (Tokens{4, 5, 6}));
  EXPECT_EQ(draft.matched, 2u);
}

TEST(PromptLookupTest, ProposesNothingWhereNothingRepeats) {
  EXPECT_TRUE(DraftOf({1, 2, 3, 4, 5, 6, 7}, 4).tokens.empty());
  EXPECT_TRUE(DraftOf({1}, 4).tokens.empty());
  EXPECT_TRUE(DraftOf({}, 4).tokens.empty());
}

TEST(PromptLookupTest, ProposesNothingForASingleToken) {
  EXPECT_TRUE(DraftOf({7, 1, 2, 3, 7}, 4).tokens.empty());
}

TEST(PromptLookupTest, TakesTheLatestOfSeveralPlaces) {
  EXPECT_EQ(DraftOf({1, 2, 30, 1, 2, 40, 1, 2}, 1).tokens, Tokens{40});
}

TEST(PromptLookupTest, PrefersALongMatchToALaterShortOne) {
  const Draft draft = DraftOf({1, 2, 3, 4, 5, 60, 9, 4, 5, 70, 1, 2, 3, 4, 5}, 1);
  EXPECT_EQ(draft.tokens, Tokens{60});
  EXPECT_EQ(draft.matched, 5u);
}

TEST(PromptLookupTest, ContinuesARepetitionBeyondItsEnd) {
  EXPECT_EQ(DraftOf({8, 1, 2, 3, 1, 2, 3, 1, 2}, 7).tokens, (Tokens{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(DraftOf({5, 5, 5}, 4).tokens, (Tokens{5, 5, 5, 5}));
}

TEST(PromptLookupTest, ReportsAtMostTheLongestMatch) {
  Tokens tokens;
  for (int round = 0; round < 2; ++round) {
    for (TokenId t = 0; t < 40; ++t) tokens.push_back(t);
  }
  EXPECT_EQ(DraftOf(tokens, 1).matched, PromptLookup::kLongestMatch);
}

TEST(PromptLookupTest, ProposesTheSameHoweverTheSequenceArrived) {
  std::mt19937 random(7);
  Tokens tokens;
  PromptLookup grown;
  for (int i = 0; i < 2000; ++i) {
    tokens.push_back(random() % 12);
    if (random() % 3 != 0) continue;
    grown.Update(tokens);
    const Draft draft = grown.Propose(tokens, 5), fresh = DraftOf(tokens, 5);
    EXPECT_EQ(draft.tokens, fresh.tokens);
    EXPECT_EQ(draft.matched, fresh.matched);
  }
}

}  // namespace
}  // namespace baton::speculation
