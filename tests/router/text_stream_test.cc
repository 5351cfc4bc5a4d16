// SPDX-License-Identifier: Apache-2.0
#include "router/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/base/utf8.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

struct Result {
  std::vector<std::string> pieces;
  std::string text;
  std::string matched;
};

// Feeds `text` in pieces of `step` bytes.
Result Match(std::vector<std::string> stops, const std::string& text, size_t step,
             bool include = false) {
  StopMatcher matcher(std::move(stops), include);
  Result result;
  for (size_t i = 0; i < text.size(); i += step) {
    result.pieces.push_back(matcher.Push(std::string_view(text).substr(i, step)));
  }
  result.pieces.push_back(matcher.Flush());
  for (const std::string& piece : result.pieces) result.text += piece;
  result.matched = matcher.matched().value_or("");
  return result;
}

struct Case {
  std::vector<std::string> stops;
  std::string text, expected, matched;
};

class StopMatcherCases : public ::testing::TestWithParam<Case> {};

TEST_P(StopMatcherCases, ResultDoesNotDependOnHowTheTextWasCut) {
  const Case& c = GetParam();
  for (size_t step = 1; step <= c.text.size() + 1; ++step) {
    const Result result = Match(c.stops, c.text, step);
    EXPECT_EQ(result.text, c.expected) << "step " << step;
    EXPECT_EQ(result.matched, c.matched) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    FieldBugs, StopMatcherCases,
    ::testing::Values(Case{{"DEFGHIJ"}, "DEFGHIJKLM", "", "DEFGHIJ"},
                      Case{{"beta gamma"}, "alpha beta gamma delta", "alpha ", "beta gamma"},
                      // A mere prefix is held and then released.
                      Case{{"beta gamma"}, "alpha beta delta", "alpha beta delta", ""},
                      Case{{"atoms with a large number of 11 protons", "ionized"},
                           "the gas is highly ionized. And",
                           "the gas is highly ",
                           "ionized"},
                      // Complete first wins; at the same byte the longest.
                      Case{{"ab", "abc"}, "xabc", "x", "ab"},
                      Case{{"abc", "bc"}, "xabc", "x", "abc"},
                      Case{{"abcd", "bc"}, "xabcd", "xa", "bc"}, Case{{"aa"}, "baaa", "b", "aa"},
                      Case{{"aab"}, "aaab", "a", "aab"}, Case{{"abab"}, "abaabab", "aba", "abab"},
                      Case{{"。好"}, "你好。好吗", "你好", "。好"},
                      // The end comes while a prefix is held.
                      Case{{"<|assistant|>"}, "pleas<", "pleas<", ""},
                      Case{{"as|"}, "pleas", "pleas", ""}, Case{{"\n"}, "\nx", "", "\n"},
                      // Inside a longer piece.
                      Case{{"lo"}, "hello world", "hel", "lo"},
                      Case{{}, "anything", "anything", ""}));

TEST(StopMatcher, HoldsNothingButAProperPrefixOfAStop) {
  StopMatcher matcher({"beta gamma", "a very long stop text that is never near"}, false);
  EXPECT_EQ(matcher.Push("alph"), "alph");
  EXPECT_EQ(matcher.Push("a"), "");  // "a very"
  EXPECT_EQ(matcher.Push("x be"), "ax ");
  EXPECT_EQ(matcher.Push("ta gammon"), "beta gammon");
}

TEST(StopMatcher, NothingFollowsAMatch) {
  StopMatcher matcher({"stop"}, false);
  EXPECT_EQ(matcher.Push("a stop b"), "a ");
  EXPECT_EQ(matcher.Push("c"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

std::vector<TokenId> Bytes(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

TEST(TextStream, ByteTokensJoinToTheWholeTextInValidPieces) {
  const std::string text = "삼겹살 깰 😊 𠮷 “x”";
  const FakeTokenizer tokenizer;
  TextStream stream(&tokenizer, {});
  std::string joined;
  for (const TokenId id : Bytes(text)) {
    const std::string piece = stream.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    joined += piece;
  }
  joined += stream.Flush();
  EXPECT_EQ(joined, text);
}

TEST(TextStream, CutCharacterBecomesReplacementCharactersOnFlush) {
  const FakeTokenizer tokenizer;
  TextStream stream(&tokenizer, {});
  std::string text;
  for (const TokenId id : Bytes("ok \xF0\x9F")) text += stream.Push(id);
  EXPECT_EQ(text, "ok ");
  EXPECT_EQ(stream.Flush(), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TextStream, StopThatIsSplitInsideACharacterIsFound) {
  const FakeTokenizer tokenizer;
  TextStream stream(&tokenizer, {.stops = {"停止"}});
  std::string text;
  for (const TokenId id : Bytes("先停止后")) {
    text += stream.Push(id);
    if (stream.matched_stop()) break;
  }
  EXPECT_EQ(text, "先");
  EXPECT_EQ(stream.matched_stop(), "停止");
}

TEST(TextStream, WithoutATokenizerThereIsNoText) {
  TextStream stream(nullptr, {});
  EXPECT_EQ(stream.Push(65), "");
  EXPECT_EQ(stream.Flush(), "");
}

// Random texts over few letters, cut at random, against a plain search.
TEST(StopMatcher, FindsExactlyWhatAPlainSearchFinds) {
  std::mt19937 random(41);
  const auto word = [&](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& letter : text) letter = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string text = word(40);
    std::vector<std::string> stops;
    for (uint32_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(word(6));
    std::string matched;
    size_t end = std::string::npos;  // of the match
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      const size_t stop_end = at + stop.size();
      if (stop_end < end || (stop_end == end && stop.size() > matched.size())) {
        end = stop_end;
        matched = stop;
      }
    }
    for (bool include : {false, true}) {
      StopMatcher matcher(stops, include);
      std::string got;
      for (size_t i = 0; i < text.size();) {
        const size_t length = 1 + random() % 7;
        got += matcher.Push(std::string_view(text).substr(i, length));
        i += length;
      }
      got += matcher.Flush();
      ASSERT_EQ(matcher.matched().value_or(""), matched) << text;
      const std::string expected =
          matched.empty() ? text : text.substr(0, include ? end : end - matched.size());
      ASSERT_EQ(got, expected) << text;
    }
  }
}

// The text of a stream, and what ended it.
struct Ended {
  std::string text;
  bool matched = false;
  size_t pushed = 0;
};

Ended Feed(const std::string& bytes, TextRules rules) {
  const FakeTokenizer tokenizer;
  TextStream stream(&tokenizer, std::move(rules));
  Ended ended;
  for (const TokenId id : Bytes(bytes)) {
    if (stream.matched()) break;
    ended.text += stream.Push(id);
    ++ended.pushed;
  }
  ended.text += stream.Flush();
  ended.matched = stream.matched();
  return ended;
}

TEST(TextStream, StopSequenceEndsTheTextBeforeIt) {
  const std::vector<std::vector<TokenId>> sequences = {Bytes("xy"), Bytes("xxz")};
  EXPECT_EQ(Feed("ab xy cd", {.stop_sequences = sequences}).text, "ab ");
  EXPECT_EQ(Feed("ab xy cd", {.stop_sequences = sequences}).pushed, 5u);
  EXPECT_EQ(Feed("ab xy cd", {.stop_sequences = sequences, .include_stop = true}).text, "ab xy");
  EXPECT_EQ(Feed("xxxz", {.stop_sequences = sequences}).text, "x");
  EXPECT_EQ(Feed("xxx", {.stop_sequences = sequences}).text, "xxx");  // held, then released
  EXPECT_FALSE(Feed("xxx", {.stop_sequences = sequences}).matched);
}

TEST(TextStream, HeldTokensAreSearchedForStopTextsToo) {
  const TextRules rules{.stops = {"bx"}, .stop_sequences = {Bytes("xq")}};
  EXPECT_EQ(Feed("abxc", rules).text, "a");
  EXPECT_EQ(Feed("abxq", rules).text, "ab");  // the sequence is complete first
}

TEST(TextStream, NothingEndsTheFirstMinTokens) {
  const TextRules rules{.stops = {"ab"}, .stop_sequences = {Bytes("cd")}, .min_tokens = 5};
  EXPECT_EQ(Feed("abcdeabf", rules).text, "abcde");
  EXPECT_EQ(Feed("abcdecdf", rules).text, "abcde");
  // One that began before is not looked for.
  EXPECT_EQ(Feed("1234abab", rules).text, "1234ab");
}

TEST(TextStream, StopsAreLookedForInWhatIsNotPolishedYet) {
  EXPECT_EQ(Feed(" \n到[[训练时间]] 。 ", {.polish = true}).text, "到2023年 。");
  EXPECT_EQ(Feed("a [[训练时间]] b", {.stops = {"时间"}, .polish = true}).text, "a [[训练");
  EXPECT_EQ(Feed("a  b", {.stops = {"b"}, .polish = true}).text, "a");
}

TEST(TextStream, SilentTokensHaveNoText) { EXPECT_EQ(Feed("a\nb", {.silent = {'\n'}}).text, "ab"); }

TEST(TextStream, StopTextIsKeptWhenAskedFor) {
  EXPECT_EQ(Feed("one stop two", {.stops = {"stop"}, .include_stop = true}).text, "one stop");
}

TEST(SequenceMatcher, FindsExactlyWhatAPlainSearchFinds) {
  std::mt19937 random(42);
  const auto run = [&](size_t longest) {
    std::vector<TokenId> ids(1 + random() % longest);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 2);
    return ids;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::vector<TokenId> ids = run(30);
    std::vector<std::vector<TokenId>> sequences;
    for (uint32_t i = 0; i < 1 + random() % 3; ++i) sequences.push_back(run(6));
    std::vector<TokenId> matched;
    auto end = ids.end();
    bool found = false;
    for (const std::vector<TokenId>& sequence : sequences) {
      const auto at = std::search(ids.begin(), ids.end(), sequence.begin(), sequence.end());
      if (at == ids.end()) continue;
      const auto stop_end = at + static_cast<std::ptrdiff_t>(sequence.size());
      if (!found || stop_end < end || (stop_end == end && sequence.size() > matched.size())) {
        end = stop_end;
        matched = sequence;
      }
      found = true;
    }
    SequenceMatcher matcher(sequences);
    std::vector<TokenId> got;
    for (TokenId id : ids) {
      const std::vector<TokenId> ready = matcher.Push(id);
      got.insert(got.end(), ready.begin(), ready.end());
    }
    const std::vector<TokenId> rest = matcher.Flush();
    got.insert(got.end(), rest.begin(), rest.end());
    ASSERT_EQ(matcher.matched().value_or(std::vector<TokenId>()), matched);
    ASSERT_EQ(got,
              std::vector<TokenId>(ids.begin(), end - static_cast<std::ptrdiff_t>(matched.size())));
  }
}

}  // namespace
}  // namespace baton::router
