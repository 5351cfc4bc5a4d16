// SPDX-License-Identifier: Apache-2.0
#include "common/prefix/journal.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace baton::prefix {
namespace {

// A reader's copy, kept by Changes alone.
struct Copy {
  std::set<uint64_t> held;
  uint64_t version = 0;
  int resets = 0;

  void Update(const Journal& journal) {
    const Changes changes = journal.Since(version);
    if (changes.reset) held.clear();
    resets += changes.reset ? 1 : 0;
    for (const uint64_t digest : changes.removed) held.erase(digest);
    for (const uint64_t digest : changes.added) held.insert(digest);
    version = changes.version;
  }
};

TEST(Journal, NewReaderGetsEverythingAndThenTheDifference) {
  Journal journal;
  journal.Add(1);
  journal.Add(2);
  Changes changes = journal.Since(0);
  EXPECT_TRUE(changes.reset);
  EXPECT_EQ(changes.added.size(), 2u);
  journal.Add(3);
  journal.Remove(1);
  changes = journal.Since(changes.version);
  EXPECT_FALSE(changes.reset);
  EXPECT_EQ(changes.added, std::vector<uint64_t>{3});
  EXPECT_EQ(changes.removed, std::vector<uint64_t>{1});
  EXPECT_TRUE(journal.Since(changes.version).empty());
}

TEST(Journal, WhatCameAndWentIsToldOnceAsItStands) {
  Journal journal;
  journal.Add(7);
  const uint64_t version = journal.version();
  for (int i = 0; i < 5; ++i) {
    journal.Remove(7);
    journal.Add(7);
  }
  const Changes changes = journal.Since(version);
  EXPECT_EQ(changes.added, std::vector<uint64_t>{7});
  EXPECT_TRUE(changes.removed.empty());
}

TEST(Journal, LateReaderIsGivenEverythingAnew) {
  Journal journal({.digests = 100, .log = 4});
  journal.Add(1);
  const uint64_t version = journal.version();
  for (uint64_t digest = 2; digest < 8; ++digest) journal.Add(digest);
  const Changes changes = journal.Since(version);
  EXPECT_TRUE(changes.reset);
  EXPECT_EQ(changes.added.size(), 7u);
}

TEST(Journal, DigestsBeyondTheBoundAreNotTold) {
  Journal journal({.digests = 3, .log = 100});
  for (uint64_t digest = 1; digest <= 10; ++digest) journal.Add(digest);
  EXPECT_EQ(journal.Since(0).added.size(), 3u);
  for (uint64_t digest = 1; digest <= 10; ++digest) journal.Remove(digest);
  EXPECT_TRUE(journal.Since(0).added.empty());
}

TEST(Journal, CopiesOfReadersAtAnyPaceEqualWhatIsHeld) {
  Journal journal({.digests = 1000, .log = 32});
  std::mt19937 random(5);
  std::multiset<uint64_t> held;
  std::vector<Copy> copies(3);
  for (int i = 0; i < 5000; ++i) {
    const uint64_t digest = random() % 50;
    if (random() % 2 == 0) {
      journal.Add(digest);
      held.insert(digest);
    } else if (const auto found = held.find(digest); found != held.end()) {
      journal.Remove(digest);
      held.erase(found);
    }
    if (random() % 3 == 0) copies[0].Update(journal);
    if (random() % 20 == 0) copies[1].Update(journal);
    if (random() % 100 == 0) copies[2].Update(journal);
  }
  for (Copy& copy : copies) {
    copy.Update(journal);
    EXPECT_EQ(copy.held, std::set<uint64_t>(held.begin(), held.end()));
  }
  EXPECT_EQ(copies[0].resets, 1);
  EXPECT_GT(copies[2].resets, 1);
}

}  // namespace
}  // namespace baton::prefix
