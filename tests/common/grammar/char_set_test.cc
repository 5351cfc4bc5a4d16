// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/char_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "common/base/utf8.h"

namespace baton::grammar {
namespace {

std::string Utf8(uint32_t code) {
  std::string out;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out.push_back(static_cast<char>(kLead[more] | code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) {
    out.push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3F)));
  }
  return out;
}

int Matches(const std::vector<ByteSequence>& sequences, const std::string& bytes) {
  int matches = 0;
  for (const ByteSequence& sequence : sequences) {
    bool fits = sequence.size == bytes.size();
    for (uint32_t i = 0; fits && i < sequence.size; ++i) {
      const auto byte = static_cast<uint8_t>(bytes[i]);
      fits = sequence.bytes[i].first <= byte && byte <= sequence.bytes[i].last;
    }
    matches += fits ? 1 : 0;
  }
  return matches;
}

CharSet RandomSet(std::mt19937& random) {
  std::vector<CodeRange> ranges;
  const int count = static_cast<int>(random() % 6);
  for (int i = 0; i < count; ++i) {
    constexpr uint32_t kBorders[] = {0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000};
    const uint32_t first =
        static_cast<uint32_t>(random() % 2 == 0 ? random() % 0x110000 : kBorders[random() % 8]);
    ranges.push_back(
        {first, std::min(first + static_cast<uint32_t>(random() % 0x3000), kLastCodePoint)});
  }
  return CharSet::Of(ranges);
}

TEST(CharSet, UnionAndDifferenceAgreeWithEveryCharacter) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const CharSet a = RandomSet(random), b = RandomSet(random);
    const CharSet both = a.Union(b), less = a.Minus(b), none = a.Complement();
    for (int i = 0; i < 2000; ++i) {
      const auto code = static_cast<uint32_t>(random() % 0x110000);
      const bool scalar = code < 0xD800 || code > 0xDFFF;
      ASSERT_EQ(both.Contains(code), a.Contains(code) || b.Contains(code)) << code;
      ASSERT_EQ(less.Contains(code), a.Contains(code) && !b.Contains(code)) << code;
      ASSERT_EQ(none.Contains(code), scalar && !a.Contains(code)) << code;
    }
  }
}

TEST(CharSet, SequencesSpellEachCharacterOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    const CharSet set = RandomSet(random);
    const auto sequences = Utf8Sequences(set);
    for (int i = 0; i < 3000; ++i) {
      const auto code = static_cast<uint32_t>(random() % 0x110000);
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      ASSERT_EQ(Matches(sequences, Utf8(code)), set.Contains(code) ? 1 : 0) << code;
    }
  }
}

TEST(CharSet, SequencesOfAllCharactersTakeValidUtf8Alone) {
  const auto sequences = Utf8Sequences(CharSet::All());
  std::mt19937 random(3);
  int singles = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string bytes(1 + random() % 4, '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random() % 4 == 0 ? random() : 0x80 | random());
    const auto leads = std::count_if(bytes.begin(), bytes.end(), [](char byte) {
      return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
    });
    const bool one = IsValidUtf8(bytes) && leads == 1;
    singles += one ? 1 : 0;
    ASSERT_EQ(Matches(sequences, bytes), one ? 1 : 0);
  }
  EXPECT_GT(singles, 10000);
}

TEST(CharSet, NegatedShorthandsLeaveOutWhatUnicodeCounts) {
  const CharSet not_digit = Digits().Negated().sure, not_word = WordCharacters().Negated().sure;
  const CharSet not_space = Spaces().Negated().sure;
  EXPECT_FALSE(not_digit.Contains('7'));
  EXPECT_FALSE(not_digit.Contains(0x0663));  // ARABIC-INDIC DIGIT THREE
  EXPECT_TRUE(not_digit.Contains(0x4E2D));
  EXPECT_FALSE(not_word.Contains(0x4E2D));
  EXPECT_TRUE(not_word.Contains('-'));
  EXPECT_TRUE(not_word.Contains(0x3002));  // IDEOGRAPHIC FULL STOP
  EXPECT_FALSE(not_space.Contains(0x3000));
  EXPECT_TRUE(not_space.Contains(0x4E2D));
  EXPECT_EQ(Digits().sure, CharSet::Of({{'0', '9'}}));
}

}  // namespace
}  // namespace baton::grammar
