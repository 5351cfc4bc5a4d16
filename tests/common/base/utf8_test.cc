// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Utf8, AcceptsEveryLengthUpToTheLastCharacter) {
  for (const std::string_view text :
       {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "你好👋！"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
  }
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndValuesBeyondTheLast) {
  for (const std::string_view text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF", "\x80", "\xE4\xBD",
        "\xF0\x9F\x91"}) {
    EXPECT_EQ(FirstInvalidUtf8(text), 0u);
  }
  EXPECT_EQ(FirstInvalidUtf8("ab\xFFz"), 2u);
}

TEST(Utf8, ReplacesEachInvalidByteAndKeepsTheRest) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\xF0\x9F\x91z"), "a\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(ReplaceInvalidUtf8("fine 你好"), "fine 你好");
}

TEST(Utf8, HoldsBackOnlyWhatMoreBytesCanComplete) {
  const std::string_view wave = "👋";  // F0 9F 91 8B
  for (size_t bytes = 1; bytes < wave.size(); ++bytes) {
    const std::string text = "a" + std::string(wave.substr(0, bytes));
    EXPECT_EQ(CompleteUtf8Prefix(text), 1u) << bytes;
  }
  EXPECT_EQ(CompleteUtf8Prefix("a👋"), 5u);
  EXPECT_EQ(CompleteUtf8Prefix("a\xFF"), 2u);     // can never become valid
  EXPECT_EQ(CompleteUtf8Prefix("\xED\xA0"), 2u);  // a surrogate
  EXPECT_EQ(CompleteUtf8Prefix("\x80\x80\x80"), 3u);
  EXPECT_EQ(CompleteUtf8Prefix(""), 0u);
}

}  // namespace
}  // namespace baton
