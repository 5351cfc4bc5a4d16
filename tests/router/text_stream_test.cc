// SPDX-License-Identifier: Apache-2.0
#include "router/text_stream.h"

#include <gtest/gtest.h>

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
Result Match(std::vector<std::string> stops, const std::string& text, size_t step) {
  StopMatcher matcher(std::move(stops));
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

class StopMatcherCases : public testing::TestWithParam<Case> {};

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
    testing::Values(Case{{"DEFGHIJ"}, "DEFGHIJKLM", "", "DEFGHIJ"},
                    Case{{"beta gamma"}, "alpha beta gamma delta", "alpha ", "beta gamma"},
                    // A mere prefix is held and then released.
                    Case{{"beta gamma"}, "alpha beta delta", "alpha beta delta", ""},
                    Case{{"atoms with a large number of 11 protons", "ionized"},
                         "the gas is highly ionized. And",
                         "the gas is highly ",
                         "ionized"},
                    // Complete first wins; at the same byte the longest.
                    Case{{"ab", "abc"}, "xabc", "x", "ab"}, Case{{"abc", "bc"}, "xabc", "x", "abc"},
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
  StopMatcher matcher({"beta gamma", "a very long stop text that is never near"});
  EXPECT_EQ(matcher.Push("alph"), "alph");
  EXPECT_EQ(matcher.Push("a"), "");  // "a very"
  EXPECT_EQ(matcher.Push("x be"), "ax ");
  EXPECT_EQ(matcher.Push("ta gammon"), "beta gammon");
}

TEST(StopMatcher, NothingFollowsAMatch) {
  StopMatcher matcher({"stop"});
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
  TextStream stream(&tokenizer, {"停止"});
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

}  // namespace
}  // namespace baton::router
