// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/common/grammar/acceptance.h"

namespace baton::grammar {
namespace {

using ::testing::HasSubstr;

class Pcre {
 public:
  Pcre(const std::string& pattern, uint32_t options) {
    int error = 0;
    size_t at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | options, &error, &at,
                          nullptr);
    pcre2_set_match_limit(limits_, 1000);
    if (code_ != nullptr) data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Pcre() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
    pcre2_match_context_free(limits_);
  }
  Pcre(const Pcre&) = delete;
  Pcre& operator=(const Pcre&) = delete;
  bool compiled() const { return code_ != nullptr; }
  // Nothing where backtracking takes too long.
  std::optional<bool> operator()(const std::string& text) const {
    const int result = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                   0, data_, nullptr);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) return std::nullopt;
    return result >= 0;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* data_ = nullptr;
  pcre2_match_context* limits_ = pcre2_match_context_create(nullptr);
};

// Expressions over few characters, so that random texts match now and then.
class RandomPattern {
 public:
  explicit RandomPattern(uint32_t seed) : random_(seed) {}

  std::string Choice(int depth) {
    std::string out = Alternative(depth);
    while (random_() % 4 == 0) out += "|" + Alternative(depth);
    return out;
  }
  std::string RandomText() {
    static const char* const kParts[] = {"a", "b",  "c", "1", "2", " ",
                                         "-", "中", "é", "🎉", "A", "_"};
    std::string out;
    for (uint32_t i = random_() % 9; i > 0; --i)
      out += kParts[random_() % (random_() % 3 == 0 ? 12 : 4)];
    return out;
  }

 private:
  std::string Alternative(int depth) {
    std::string out;
    for (uint32_t i = random_() % 4; i > 0; --i) out += Repeated(depth);
    return out;
  }
  std::string Repeated(int depth) {
    static const char* const kRepeats[] = {"",    "",      "",      "*",    "+",  "?",
                                           "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{3,20}"};
    return Atom(depth) + kRepeats[random_() % 12];
  }
  std::string Atom(int depth) {
    static const char* const kAtoms[] = {"a",       "b",       "c",      "1",       "\\d",   "\\w",
                                         "[ab]",    "[a-c1]",  "中",     "[中é-ü]", "\\x61", "\\-",
                                         "[^ab中]", "\\u4e2d", "[\\d_]", "[🎉a]"};
    if (depth > 0 && random_() % 3 == 0) {
      static const char* const kOpen[] = {"(", "(?:", "(?<name>"};
      const char* open = named_ ? kOpen[random_() % 2] : kOpen[random_() % 3];
      named_ |= std::string(open) == "(?<name>";
      return open + Choice(depth - 1) + ")";
    }
    return kAtoms[random_() % 16];
  }

  std::mt19937 random_;
  bool named_ = false;
};

// PCRE2 spells \u4e2d as \x{4e2d}.
std::string ForPcre(std::string pattern) {
  for (size_t at = 0; (at = pattern.find("\\u4e2d", at)) != std::string::npos;) {
    pattern.replace(at, 6, "\\x{4e2d}");
  }
  return pattern;
}

TEST(Regex, MatchesWhatPcre2MatchesOnRandomExpressions) {
  int matched = 0, compared = 0, patterns = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomPattern random(seed);
    const std::string pattern = random.Choice(2);
    const auto program = Compile(RegexSource(pattern));
    if (!program.ok()) {  // ambiguous counts may be refused, nothing else
      EXPECT_THAT(std::string(program.status().message()), HasSubstr("too many readings"))
          << pattern;
      continue;
    }
    Acceptor accepts = Pattern(pattern);
    const Pcre oracle(ForPcre(pattern), 0);
    if (!oracle.compiled()) continue;  // too large for it
    ++patterns;
    for (int i = 0; i < 40; ++i) {
      const std::string text = random.RandomText();
      const std::optional<bool> expected = oracle(text);
      if (!expected) continue;
      ASSERT_EQ(accepts(text), *expected) << pattern << " on " << text;
      matched += *expected ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_GT(patterns, 180);
  EXPECT_GT(matched, compared / 50);
}

// \D, \W, \S and the dot: a text that matches here does so for both readings.
TEST(Regex, NegatedShorthandsMatchWithAndWithoutUnicode) {
  const char* const kPatterns[] = {"\\D+",     "\\W*\\S", "[^\\d]{1,4}", "[\\W\\d]+", "[^\\w ]+",
                                   "\\S*.\\D", ".*",      "[\\S]{2,}",   "[^\\S]+"};
  static const char* const kParts[] = {"a",  "1", " ", "-", "中", "é", "🎉", "٣", "\xE3\x80\x80",
                                       "\t", "_"};
  std::mt19937 random(7);
  int matched = 0;
  for (const char* pattern : kPatterns) {
    Acceptor accepts = Pattern(pattern);
    const Pcre plain(pattern, 0), unicode(pattern, PCRE2_UCP);
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (uint32_t n = random() % 5; n > 0; --n) text += kParts[random() % 11];
      if (!accepts(text)) continue;
      ++matched;
      EXPECT_TRUE(*plain(text)) << pattern << " on " << text;
      EXPECT_TRUE(*unicode(text)) << pattern << " on " << text;
    }
  }
  EXPECT_GT(matched, 2000);
}

TEST(Regex, AnchorsAtTheEndsChangeNothing) {
  Acceptor accepts = Pattern("^(ab|c)+$");
  EXPECT_TRUE(accepts("abc"));
  EXPECT_FALSE(accepts(" abc"));
  EXPECT_TRUE(Pattern("^a$|^b$")("b"));
}

TEST(Regex, LongCountsAreExact) {
  Acceptor accepts = Pattern("(ab){200,300}-[a-z]{0,1000}");
  const auto text = [](int pairs, int letters) {
    std::string out;
    for (int i = 0; i < pairs; ++i) out += "ab";
    return out + "-" + std::string(static_cast<size_t>(letters), 'q');
  };
  EXPECT_FALSE(accepts(text(199, 0)));
  EXPECT_TRUE(accepts(text(200, 0)));
  EXPECT_TRUE(accepts(text(300, 1000)));
  EXPECT_FALSE(accepts(text(301, 0)));
  EXPECT_FALSE(accepts(text(300, 1001)));
}

TEST(Regex, WhatIsNotSupportedIsNamedWithItsPlace) {
  struct Unsupported {
    const char *pattern, *problem;
  };
  const Unsupported cases[] = {
      {"a(?=b)", "lookahead (?=...) at byte 1 is not supported"},
      {"a(?!b)", "lookahead (?!...) at byte 1"},
      {"(?<=a)b", "lookbehind (?<=...) at byte 0"},
      {"(a)\\1", "backreference \\1 at byte 3"},
      {"(?P<x>a)(?P=x)", "backreference (?P=...) at byte 8"},
      {"a++", "possessive repeat at byte 1"},
      {"(?>a)", "atomic group (?>...) at byte 0"},
      {"(?i)a", "option (?...) at byte 0"},
      {"\\bword", "\\b at byte 0 is not supported"},
      {"\\p{L}", "\\p at byte 0"},
      {"[[:alpha:]]", "POSIX class at byte 1"},
      {"a^b", "^ inside of an expression at byte 1"},
      {"(a$)b", "$ inside of an expression at byte 2"},
      {"a{2", "{ that is no repeat (write \\{) at byte 1"},
      {"a{5,2}", "repeat with its numbers out of order at byte 1"},
      {"a{70000}", "repeat of more than 65535 at byte 1"},
      {"a**", "repeat of a repeat at byte 2"},
      {"*a", "nothing to repeat at byte 0"},
      {"(ab", "unmatched ( at byte 0"},
      {"ab)", "unmatched ) at byte 2"},
      {"[ab", "unmatched [ at byte 0"},
      {"[z-a]", "range out of order at byte 1"},
      {"[a-\\d]", "range with a class at its end at byte 1"},
      {"[]a]", "] as the first of a class (write \\]) at byte 1"},
      {"ab\\", "\\ without a character behind it at byte 2"},
      {"\\x1", "incomplete escape at byte 0"},
      {"\\ud800", "escape of no character at byte 0"},
      {"\xFF", "no valid UTF-8"},
  };
  for (const Unsupported& c : cases) {
    EXPECT_THAT(Refusal(RegexSource(c.pattern)), HasSubstr(c.problem)) << c.pattern;
  }
}

TEST(Regex, AnEmptyLanguageIsRefused) {
  EXPECT_EQ(Refusal(RegexSource("a[^\\x{0}-\\x{10FFFF}]")), "no finite text matches it");
}

}  // namespace
}  // namespace baton::grammar
