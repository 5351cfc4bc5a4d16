// SPDX-License-Identifier: Apache-2.0
#include "common/chat/polish.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton::chat {
namespace {

std::string Polished(const std::vector<std::string>& pieces) {
  AnswerPolish polish;
  std::string text;
  for (const std::string& piece : pieces) text += polish.Push(piece);
  return text + polish.Flush();
}

TEST(AnswerPolishTest, StripsAndFillsInTheYearAsTheReferenceDoes) {
  EXPECT_EQ(Polished({"\n 到[[训练时间]]，[[训练时间]] \u3000\n"}), "到2023年，2023年");
  EXPECT_EQ(Polished({" \n"}), "");
  EXPECT_EQ(Polished({}), "");
}

TEST(AnswerPolishTest, KeepsWhiteSpaceInside) { EXPECT_EQ(Polished({" a \n\nb "}), "a \n\nb"); }

TEST(AnswerPolishTest, ReleasesWhatCannotBecomeThePlaceholder) {
  AnswerPolish polish;
  EXPECT_EQ(polish.Push("a [["), "a ");
  EXPECT_EQ(polish.Push("b"), "[[b");
  EXPECT_EQ(polish.Push(" "), "");
  EXPECT_EQ(polish.Push("[[训练"), " ");
  EXPECT_EQ(polish.Flush(), "[[训练");
}

TEST(AnswerPolishTest, FindsThePlaceholderBehindItsOwnBeginning) {
  EXPECT_EQ(Polished({"[", "[[训", "练时间]", "]"}), "[2023年");
}

// Cuts between characters, wherever they are, change nothing.
TEST(AnswerPolishTest, DoesNotDependOnHowTheAnswerArrived) {
  const std::vector<std::string> characters = {" ",  "\u3000", "\u00a0", "[", "[",  "训",
                                               "练", "时",     "间",     "]", "]]", "a"};
  std::mt19937 random(3);
  int with_year = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string whole;
    std::vector<std::string> pieces(1);
    for (uint32_t i = 0, n = random() % 24; i < n; ++i) {
      const bool placeholder = random() % 8 == 0;
      for (const std::string& character :
           placeholder ? std::vector<std::string>{"[", "[", "训", "练", "时", "间", "]", "]"}
                       : std::vector<std::string>{characters[random() % characters.size()]}) {
        whole += character;
        if (random() % 2 == 0) pieces.emplace_back();
        pieces.back() += character;
      }
    }
    const std::string polished = Polished(pieces);
    EXPECT_EQ(polished, Polished({whole}));
    EXPECT_EQ(polished, StripSpace(polished));
    with_year += polished.find("2023年") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(with_year, 100);
}

TEST(StripSpaceTest, KnowsTheWhiteSpaceOfUnicode) {
  EXPECT_EQ(StripSpace("\u2028\u1680\x1f x\u200a y\u0085\u00a0\v"), "x\u200a y");
  EXPECT_EQ(StripSpace("\u200bx\u200b"), "\u200bx\u200b");  // no white space
  EXPECT_EQ(StripSpace("\u3000\t"), "");
}

}  // namespace
}  // namespace baton::chat
