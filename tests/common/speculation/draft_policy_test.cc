// SPDX-License-Identifier: Apache-2.0
#include "common/speculation/draft_policy.h"

#include <gtest/gtest.h>

namespace baton::speculation {
namespace {

constexpr Evidence kShort = Evidence::kShort, kLong = Evidence::kLong;

TEST(DraftLengthTest, ChecksTokensWhileTheirChanceExceedsThePriceOfARow) {
  EXPECT_EQ(DraftLength(0.5, 0.2, 16), 2u);  // 0.5 and 0.25, not 0.125
  EXPECT_EQ(DraftLength(0.1, 0.2, 16), 0u);
  EXPECT_EQ(DraftLength(0.9, 0.0, 16), 16u);  // rows are free
  EXPECT_EQ(DraftLength(0.9, 0.0, 0), 0u);
}

TEST(DraftLengthTest, ChecksNothingThatHardlyPays) {
  EXPECT_EQ(DraftLength(0.05, 0.04, 16), 0u);  // as for the first time in a short answer
  EXPECT_EQ(DraftLength(0.08, 0.04, 16), 1u);
}

TEST(DraftLengthTest, NeverChecksWhereARowCostsAToken) { EXPECT_EQ(DraftLength(1.0, 1.0, 16), 0u); }

TEST(DraftRecordTest, ExpectsMoreOfLongMatches) {
  const DraftRecord record;
  EXPECT_GT(record.Probability(kLong), record.Probability(kShort));
}

TEST(DraftRecordTest, FollowsWhatDraftsDid) {
  DraftRecord record;
  for (int i = 0; i < 50; ++i) record.Observe(kLong, 8, 8);
  EXPECT_GT(record.Probability(kLong), 0.95);
  for (int i = 0; i < 60; ++i) record.Observe(kLong, 8, 0);
  EXPECT_LT(record.Probability(kLong), 0.1);
}

TEST(DraftRecordTest, LearnsNothingOfTokensBehindAWrongOne) {
  DraftRecord record;
  for (int i = 0; i < 50; ++i) record.Observe(kLong, 8, 4);
  EXPECT_NEAR(record.Probability(kLong), 0.8, 0.01);
}

TEST(DraftRecordTest, KnowsShortMatchesApart) {
  DraftRecord record;
  for (int i = 0; i < 50; ++i) record.Observe(kShort, 4, 0);
  EXPECT_LT(record.Probability(kShort), 0.1);
  EXPECT_NEAR(record.Probability(kLong), DraftRecord().Probability(kLong), 1e-9);
}

TEST(DraftRecordTest, TriesAgainSomeTimeAfterFailures) {
  constexpr double kPrice = 0.1;
  DraftRecord record;
  for (int i = 0; i < 30; ++i) record.Observe(kShort, 1, 0);
  int skipped = 0;
  while (DraftLength(record.Probability(kShort), kPrice, 4) == 0 && skipped < 1000) {
    record.Skip(kShort);
    ++skipped;
  }
  EXPECT_GT(skipped, 50);
  EXPECT_LT(skipped, 500);
}

TEST(PriceDoubtTest, TriesOneOfManyThatPriceForbids) {
  PriceDoubt doubt;
  uint32_t tried = 0;
  for (uint32_t i = 0; i < 10 * PriceDoubt::kEvery; ++i) tried += doubt.Try() ? 1 : 0;
  EXPECT_EQ(tried, 10u);
  EXPECT_FALSE(doubt.Try()) << "not at once again";
}

}  // namespace
}  // namespace baton::speculation
