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
  EXPECT_EQ(draft.evidence, Evidence::kShort);
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
  EXPECT_EQ(draft.evidence, Evidence::kLong);
}

TEST(PromptLookupTest, ContinuesARepetitionBeyondItsEnd) {
  EXPECT_EQ(DraftOf({8, 1, 2, 3, 1, 2, 3, 1, 2}, 7).tokens, (Tokens{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(DraftOf({5, 5, 5}, 4).tokens, (Tokens{5, 5, 5, 5}));
}

TEST(PromptLookupTest, TellsWhatSpeaksForADraft) {
  EXPECT_EQ(DraftOf({1, 2, 3, 4, 9, 2, 3, 4}, 1).evidence, Evidence::kMiddle);
  EXPECT_EQ(DraftOf({1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5}, 1).evidence, Evidence::kLong);
}

// As in code in which a variable gets another name.
TEST(PromptLookupTest, GoesOnBehindAnotherTokenAndExpectsItAgain) {
  Tokens tokens = {1, 2, 3, 50, 4, 5, 6, 50, 7, 8, 50, 9, 99};
  for (const TokenId token : {1, 2, 3, 70}) tokens.push_back(token);
  const Draft draft = DraftOf(tokens, 8);
  EXPECT_EQ(draft.tokens, (Tokens{4, 5, 6, 70, 7, 8, 70, 9}));
  EXPECT_EQ(draft.evidence, Evidence::kResumed);
  for (const TokenId token : {4, 5, 6, 50}) tokens.push_back(token);  // not this one
  EXPECT_EQ(DraftOf(tokens, 4).tokens, (Tokens{7, 8, 50, 9}));
}

TEST(PromptLookupTest, GoesOnBehindSeveralTokensInThePlaceOfOne) {
  Tokens tokens = {1, 2, 3, 50, 4, 5, 50, 99, 1, 2, 3, 70};
  for (const TokenId token : {71, 72}) {
    tokens.push_back(token);
    EXPECT_EQ(DraftOf(tokens, 3).tokens, (Tokens{4, 5, 50}));
  }
  for (TokenId token = 73; token < 80; ++token) tokens.push_back(token);
  EXPECT_TRUE(DraftOf(tokens, 3).tokens.empty());  // it is about something else
}

TEST(PromptLookupTest, LeavesACopyForALongerMatch) {
  // 5 6 7 8 goes on elsewhere than behind 1 2 3.
  const Tokens tokens = {5, 6, 7, 8, 9, 1, 2, 3, 30, 40, 99, 1, 2, 3, 5, 6, 7, 8};
  EXPECT_EQ(DraftOf(tokens, 1).tokens, Tokens{9});
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
    EXPECT_EQ(draft.evidence, fresh.evidence);
  }
}

}  // namespace
}  // namespace baton::speculation
