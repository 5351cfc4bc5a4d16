// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/utf8.h"
#include "tests/common/grammar/acceptance.h"

namespace baton::grammar {
namespace {

using ::testing::HasSubstr;

constexpr TokenId kEnd = 0;

// An end token without text, every single byte, and pieces of text that cross
// the borders of grammars and characters.
std::vector<TokenTrie::Token> MakeTestTokens() {
  std::vector<TokenTrie::Token> tokens{{"", false}};
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back({std::string(1, static_cast<char>(byte)), true});
  const std::set<std::string> pieces = {" ",
                                        "  ",
                                        "\":",
                                        "\": ",
                                        "\",",
                                        "\", \"",
                                        "{\"",
                                        "\"}",
                                        "}}",
                                        "}]",
                                        "],",
                                        "[[",
                                        "\":\"",
                                        "\": \"",
                                        "true",
                                        "false",
                                        "null",
                                        "tr",
                                        "ue",
                                        ",\"",
                                        "a",
                                        "ab",
                                        "abc",
                                        " a",
                                        " the",
                                        "the",
                                        "name",
                                        "\"name",
                                        "\"name\":",
                                        "value",
                                        "12",
                                        "123",
                                        "0",
                                        "00",
                                        ".5",
                                        "-1",
                                        "e+",
                                        "\\n",
                                        "\\\"",
                                        "\\u",
                                        "\\u00",
                                        "é",
                                        "\xC3",
                                        "\xA9",
                                        "中",
                                        "中文",
                                        "\xE4\xB8",
                                        "\xAD",
                                        "\xAD文",
                                        "🎉",
                                        "\xF0\x9F",
                                        "\x8E\x89",
                                        "a中",
                                        "\n",
                                        "\t",
                                        "hello world",
                                        "abcdefghijklmnopqrstuvwxyz",
                                        "yes",
                                        "no",
                                        "ye",
                                        "es",
                                        "s!",
                                        "2024-",
                                        "-01",
                                        std::string(40, 'x')};
  for (const std::string& piece : pieces) tokens.push_back({piece, false});
  return tokens;
}

const std::vector<TokenTrie::Token>& TestTokens() {
  static const std::vector<TokenTrie::Token> tokens = MakeTestTokens();
  return tokens;
}

std::shared_ptr<const TokenTrie> TestTrie(bool drops_space = false) {
  return std::make_shared<const TokenTrie>(TestTokens(), drops_space);
}

Matcher MakeMatcher(const Source& source, bool drops_space = false) {
  return Matcher(*Compile(source), TestTrie(drops_space));
}

Source AnyObject() { return {.kind = SourceKind::kAnyObject, .text = "", .choices = {}}; }

const std::vector<Source>& Sources() {
  static const std::vector<Source> sources = {
      AnyObject(),
      {.kind = SourceKind::kAnyValue, .text = "", .choices = {}},
      ChoicesSource({"yes", "yes!", "no", "中文", "中", "the name"}),
      RegexSource("[a-z]{2,40}( [a-z]+){0,3}\\."),
      RegexSource("(中|é|🎉){3,5}"),
      RegexSource("[^\\d]{4}-\\d{2}"),
      RegexSource(".{0,12}"),
      RegexSource(" {0,2}a+"),
      SchemaSource(
          R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"n":{"type":"integer","minimum":-5,"maximum":130},"ok":{"type":"boolean"}},"required":["name","n"]})"),
      SchemaSource(
          R"({"type":"array","items":{"enum":["ab","abc","中文",12,true]},"minItems":1,"maxItems":4})"),
      SchemaSource(R"({"type":"string","minLength":3,"maxLength":60})"),
      SchemaSource(
          R"({"type":"object","properties":{"name":{"type":"string"}},"additionalProperties":{"type":"number"}})"),
      SchemaSource(
          R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"string","pattern":"^[a-c中]{1,9}$"},"c":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["v","c"]}}})"),
  };
  return sources;
}

// Draws from masks with a liking for some tokens; gives the outputs.
struct WalkResult {
  std::vector<TokenId> outputs;  // without the end token
  bool ended = false;            // the grammar was complete, or the end token was drawn
  std::string text;
};

WalkResult RandomWalk(Matcher& matcher, uint32_t seed, uint32_t most, double end_share = 0.3) {
  std::mt19937 random(seed);
  WalkResult result;
  Cursor cursor;
  const std::vector<TokenId> ends{kEnd};
  while (result.outputs.size() < most) {
    Matcher::Standing standing;
    EXPECT_TRUE(matcher.Follow(result.outputs, &cursor, &standing).ok());
    if (standing.ended) {
      result.ended = true;
      break;
    }
    TokenMask mask;
    const StepRequest request{.outputs = result.outputs,
                              .tokens_left = most - static_cast<uint32_t>(result.outputs.size()),
                              .end_tokens = ends};
    const absl::Status status = matcher.FillMask(request, &cursor, &mask);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(HasBit(mask, kEnd), standing.may_end);
    std::vector<TokenId> allowed;
    for (TokenId id = 1; id < matcher.trie().vocabulary(); ++id) {
      if (HasBit(mask, id)) allowed.push_back(id);
    }
    const bool end = HasBit(mask, kEnd) &&
                     (allowed.empty() || std::uniform_real_distribution<>()(random) < end_share);
    if (end) {
      result.ended = true;
      break;
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "no token may follow " << result.text;
      break;
    }
    const TokenId token = allowed[random() % allowed.size()];
    std::string_view bytes = matcher.trie().bytes(token);
    if (result.outputs.empty() && matcher.trie().LosesSpace(token)) bytes.remove_prefix(1);
    result.text += bytes;
    result.outputs.push_back(token);
  }
  return result;
}

TEST(Matcher, MasksHoldTheTokensThatMayFollow) {
  for (const Source& source : Sources()) {
    Matcher matcher = MakeMatcher(source);
    const auto program = *Compile(source);
    Automaton automaton(program.get(), Automaton::Limits());
    for (uint32_t seed = 0; seed < 12; ++seed) {
      const WalkResult walk = RandomWalk(matcher, seed, 30);
      StateId state = automaton.start();
      std::string prefix;
      Cursor cursor;
      for (size_t i = 0; i <= walk.outputs.size(); ++i) {
        TokenMask mask;
        const auto so_far = std::span(walk.outputs).first(i);
        ASSERT_TRUE(matcher.FillMask({.outputs = so_far}, &cursor, &mask).ok());
        for (TokenId id = 0; id < matcher.trie().vocabulary(); ++id) {
          StateId after = state;
          const std::string& bytes = TestTokens()[id].bytes;
          for (const char byte : bytes) after = automaton.Next(after, static_cast<uint8_t>(byte));
          const bool fits = !bytes.empty() && bytes.size() <= TokenTrie::kLongestToken &&
                            after > Automaton::kTooMany;
          ASSERT_EQ(HasBit(mask, id), fits)
              << source.text << " after " << prefix << ": " << id << " " << bytes;
        }
        if (i < walk.outputs.size()) {
          prefix += TestTokens()[walk.outputs[i]].bytes;
          for (const char byte : TestTokens()[walk.outputs[i]].bytes) {
            state = automaton.Next(state, static_cast<uint8_t>(byte));
          }
        }
      }
    }
  }
}

TEST(Matcher, RandomWalksThatEndMatchTheGrammar) {
  int ended = 0;
  for (const Source& source : Sources()) {
    for (const bool drops_space : {false, true}) {
      Matcher matcher = MakeMatcher(source, drops_space);
      Acceptor accepts(source);
      for (uint32_t seed = 0; seed < 40; ++seed) {
        const WalkResult walk = RandomWalk(matcher, seed, 60);
        if (!walk.ended) continue;
        ++ended;
        EXPECT_TRUE(accepts(walk.text)) << source.text << ": " << walk.text;
        EXPECT_TRUE(IsValidUtf8(walk.text));
        if (source.kind != SourceKind::kRegex && source.kind != SourceKind::kChoices) {
          EXPECT_TRUE(nlohmann::json::accept(walk.text)) << walk.text;
        }
      }
    }
  }
  EXPECT_GT(ended, 950);
}

// An answer never runs out of tokens in the middle where there was room at first.
TEST(Matcher, AnswersEndInTimeWhereTokensAreFew) {
  for (const Source& source : Sources()) {
    Matcher matcher = MakeMatcher(source);
    Acceptor accepts(source);
    for (uint32_t seed = 0; seed < 60; ++seed) {
      const uint32_t most = 26 + seed % 40;
      const WalkResult walk = RandomWalk(matcher, seed, most, 0.0);
      EXPECT_TRUE(accepts(walk.text)) << source.text << " in " << most << ": " << walk.text;
    }
  }
}

TEST(Matcher, WithTooFewTokensFromTheStartItGoesOnAllTheSame) {
  Matcher matcher = MakeMatcher(SchemaSource(R"({"const":"a long text that takes many tokens"})"));
  const WalkResult walk = RandomWalk(matcher, 1, 3);
  EXPECT_EQ(walk.outputs.size(), 3u);
  EXPECT_FALSE(walk.ended);
}

TEST(Matcher, EndTokensAreThereOnlyWhereTheTextMayEnd) {
  Matcher matcher = MakeMatcher(RegexSource("a{2,3}"));
  const TokenId a = 1 + 'a', b = 1 + 'b';
  // An ordinary token, too, may be an end token: it has no text then.
  const std::vector<TokenId> ends{kEnd, a, b};
  Cursor cursor;
  TokenMask mask;
  const auto fill = [&](const std::vector<TokenId>& outputs) {
    ASSERT_TRUE(matcher.FillMask({.outputs = outputs, .end_tokens = ends}, &cursor, &mask).ok());
  };
  fill({});
  EXPECT_FALSE(HasBit(mask, kEnd) || HasBit(mask, a) || HasBit(mask, b));
  fill({a, a});
  EXPECT_TRUE(HasBit(mask, kEnd) && HasBit(mask, a) && HasBit(mask, b));
  Matcher::Standing standing;
  ASSERT_TRUE(matcher.Follow(std::vector<TokenId>{a, a}, &cursor, &standing).ok());
  EXPECT_TRUE(standing.may_end);
  EXPECT_FALSE(standing.ended);
  ASSERT_TRUE(matcher.Follow(std::vector<TokenId>{a, a, a}, &cursor, &standing).ok());
  EXPECT_TRUE(standing.ended);
  fill({a, a, a});
  EXPECT_TRUE(HasBit(mask, kEnd));
}

TEST(Matcher, CharactersMaySpanTokens) {
  Matcher matcher = MakeMatcher(RegexSource("中文"));
  std::set<std::vector<TokenId>> ways;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const WalkResult walk = RandomWalk(matcher, seed, 20);
    ASSERT_TRUE(walk.ended);
    ASSERT_EQ(walk.text, "中文");
    ways.insert(walk.outputs);
  }
  EXPECT_EQ(ways.size(), 8u);
}

TEST(Matcher, TheSpaceThatADecoderDropsIsNoPartOfTheText) {
  Matcher matcher = MakeMatcher(RegexSource("a( a)?"), /*drops_space=*/true);
  const auto id_of = [&](std::string_view text, bool is_byte) {
    const auto& tokens = TestTokens();
    for (TokenId id = 0; id < tokens.size(); ++id) {
      if (tokens[id].bytes == text && tokens[id].is_byte == is_byte) return id;
    }
    return TokenId{0};
  };
  const TokenId spaced = id_of(" a", false), plain = id_of("a", false);
  const TokenId space = id_of(" ", false), space_byte = id_of(" ", true);
  Cursor cursor;
  TokenMask mask;
  ASSERT_TRUE(matcher.FillMask({}, &cursor, &mask).ok());
  EXPECT_TRUE(HasBit(mask, spaced));
  EXPECT_TRUE(HasBit(mask, plain));
  EXPECT_FALSE(HasBit(mask, space));       // would stand for nothing
  EXPECT_FALSE(HasBit(mask, space_byte));  // is kept, and does not fit
  for (const TokenId first : {spaced, plain}) {
    const std::vector<TokenId> outputs{first};
    ASSERT_TRUE(matcher.FillMask({.outputs = outputs}, &cursor, &mask).ok());
    EXPECT_TRUE(HasBit(mask, spaced));
    EXPECT_TRUE(HasBit(mask, space));
    EXPECT_TRUE(HasBit(mask, space_byte));
    EXPECT_FALSE(HasBit(mask, plain));
  }
  Matcher raw = MakeMatcher(RegexSource(" a"), /*drops_space=*/true);
  Cursor raw_cursor;
  ASSERT_TRUE(raw.FillMask({}, &raw_cursor, &mask).ok());
  EXPECT_TRUE(HasBit(mask, space_byte));
  EXPECT_TRUE(HasBit(mask, id_of("  ", false)));
}

TEST(Matcher, WhatItHasForgottenIsFoundAgain) {
  const Source source = AnyObject();
  Matcher small(*Compile(source), TestTrie(),
                {.automaton = {}, .bytes = 1 << 15, .new_states = 20000});
  Matcher large = MakeMatcher(source);
  for (uint32_t seed = 0; seed < 30; ++seed) {
    EXPECT_EQ(RandomWalk(small, seed, 50).outputs, RandomWalk(large, seed, 50).outputs);
  }
  EXPECT_GT(small.counters().generations, 2u);
  EXPECT_EQ(large.counters().generations, 1u);
}

TEST(Matcher, ACursorIsWorthNoMoreThanItsOutputs) {
  Matcher matcher = MakeMatcher(AnyObject());
  const WalkResult walk = RandomWalk(matcher, 5, 40);
  Cursor kept;
  for (size_t i = 0; i <= walk.outputs.size(); ++i) {
    Cursor fresh;
    TokenMask a, b;
    const auto so_far = std::span(walk.outputs).first(i);
    ASSERT_TRUE(matcher.FillMask({.outputs = so_far, .tokens_left = 90}, &kept, &a).ok());
    ASSERT_TRUE(matcher.FillMask({.outputs = so_far, .tokens_left = 90}, &fresh, &b).ok());
    ASSERT_EQ(a, b);
  }
}

TEST(Matcher, OutputsThatDoNotMatchAreAnError) {
  Matcher matcher = MakeMatcher(RegexSource("ab"));
  Cursor cursor;
  Matcher::Standing standing;
  const std::vector<TokenId> wrong{1 + 'a', 1 + 'c'}, control{kEnd};
  EXPECT_THAT(std::string(matcher.Follow(wrong, &cursor, &standing).message()),
              HasSubstr("output 1, token 100, does not match"));
  EXPECT_FALSE(matcher.Follow(control, &cursor, &standing).ok());
}

TEST(Matcher, MasksAreMadeOncePerKindOfPlace) {
  Matcher matcher = MakeMatcher(SchemaSource(R"({"type":"string","maxLength":60000})"));
  std::vector<TokenId> outputs{1 + '"'};
  Cursor cursor;
  TokenMask mask;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(matcher.FillMask({.outputs = outputs}, &cursor, &mask).ok());
    outputs.push_back(1 + 'a');
  }
  EXPECT_EQ(matcher.counters().masks, 2000u);
  EXPECT_LT(matcher.counters().masks_made, 5u);
}

TEST(Matcher, MayBeUsedFromManyThreads) {
  Matcher matcher = MakeMatcher(AnyObject());
  std::vector<std::vector<TokenId>> expected;
  for (uint32_t seed = 0; seed < 4; ++seed)
    expected.push_back(RandomWalk(matcher, seed, 40).outputs);
  Matcher shared(*Compile(AnyObject()), TestTrie(),
                 {.automaton = {}, .bytes = 1 << 16, .new_states = 20000});
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      for (int i = 0; i < 5; ++i) EXPECT_EQ(RandomWalk(shared, seed, 40).outputs, expected[seed]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace baton::grammar
