// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/common/grammar/acceptance.h"

namespace baton::grammar {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const TokenTrie> ByteTrie() {
  std::vector<TokenTrie::Token> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back({std::string(1, static_cast<char>(byte)), true});
  }
  return std::make_shared<const TokenTrie>(tokens, false);
}

TEST(LruCache, KeepsThoseThatWereAskedForLast) {
  LruCache<int, int> cache(2);
  EXPECT_EQ(cache.Put(1, 10), 10);
  EXPECT_EQ(cache.Put(2, 20), 20);
  EXPECT_EQ(cache.Put(1, 11), 10);  // the first one stays
  EXPECT_EQ(cache.Find(1), 10);
  cache.Put(3, 30);
  EXPECT_FALSE(cache.Find(2).has_value());
  EXPECT_EQ(cache.Find(1), 10);
  EXPECT_EQ(cache.Find(3), 30);
}

TEST(ProgramCache, GivesTheSameProgramAndTheSameRefusal) {
  ProgramCache cache;
  const auto first = cache.Get(RegexSource("a+")), second = cache.Get(RegexSource("a+"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->get(), second->get());
  const auto refused = cache.Get(RegexSource("a(?=b)"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("lookahead"));
  EXPECT_EQ(cache.Get(RegexSource("a(?=b)")).status(), refused.status());
  // The same text means something else in another kind of constraint.
  EXPECT_NE(cache.Get(ChoicesSource({"a+"}))->get(), first->get());
}

TEST(MatcherCache, SharesMatchersAndForgetsOldOnes) {
  MatcherCache cache([] { return ByteTrie(); }, 2);
  const auto a = *cache.Get(RegexSource("a"));
  EXPECT_EQ(*cache.Get(RegexSource("a")), a);
  (void)cache.Get(RegexSource("b"));
  (void)cache.Get(RegexSource("c"));
  EXPECT_NE(*cache.Get(RegexSource("a")), a);
  EXPECT_EQ(a.use_count(), 1);
}

TEST(MatcherCache, SaysWhyThereIsNoVocabulary) {
  MatcherCache cache(
      []() -> MatcherCache::Vocabulary { return absl::FailedPreconditionError("no tokenizer"); });
  EXPECT_EQ(cache.Get(RegexSource("a")).status().message(), "no tokenizer");
}

TEST(MatcherCache, MayBeUsedFromManyThreads) {
  MatcherCache cache([] { return ByteTrie(); }, 3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&cache, i] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_TRUE(
            cache.Get(RegexSource(std::string(1, static_cast<char>('a' + (i + round) % 5)))).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace baton::grammar
