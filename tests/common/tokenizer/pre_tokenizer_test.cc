// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(std::string_view name, std::string_view text) {
  const auto made = PreTokenizer::Make(name);
  EXPECT_TRUE(made.ok()) << made.status();
  std::vector<std::string> words;
  for (std::string_view word : (*made)->Split(text)) words.emplace_back(word);
  return words;
}

TEST(PreTokenizer, Gpt2KeepsNumbersTogetherAndOneSpaceInFront) {
  EXPECT_THAT(Split("gpt-2", "I'll pay 1234 $  now\n\n"),
              ElementsAre("I", "'ll", " pay", " 1234", " $", " ", " now", "\n\n"));
}

TEST(PreTokenizer, SmolLmCutsEveryDigitBeforeAllElse) {
  // The space before a digit ends a piece there, so it stands alone.
  EXPECT_THAT(Split("smollm", "pay 12  3x"), ElementsAre("pay", " ", "1", "2", "  ", "3", "x"));
}

TEST(PreTokenizer, Llama3TakesThreeDigitsAndQwen2One) {
  EXPECT_THAT(Split("llama-bpe", "12345!\n\nA"), ElementsAre("123", "45", "!\n\n", "A"));
  EXPECT_THAT(Split("qwen2", "12 I'LL (go)"), ElementsAre("1", "2", " I", "'LL", " (", "go", ")"));
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_THAT(Split("gpt-2", "a\u180E b"), ElementsAre("a", "\u180E", " b"));
  EXPECT_THAT(Split("gpt-2", "a\u3000\u3000b"), ElementsAre("a", "\u3000", "\u3000", "b"));
}

TEST(PreTokenizer, UnknownNameListsThoseThatAreKnown) {
  const auto made = PreTokenizer::Make("tekken");
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(made.status().message()), ::testing::HasSubstr("smollm"));
}

TEST(PreTokenizer, LongRunsOfOneKindAreCutInLinearTime) {
  // With a check or a backtrack per character these would take minutes.
  for (const std::string& name : PreTokenizerNames()) {
    for (std::string_view unit : {"a", " ", "\n", "_", "一", "1", " \t"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      size_t bytes = 0;
      for (const std::string& word : Split(name, text)) bytes += word.size();
      EXPECT_EQ(bytes, text.size()) << name;
    }
  }
}

}  // namespace
}  // namespace baton::tokenizer
