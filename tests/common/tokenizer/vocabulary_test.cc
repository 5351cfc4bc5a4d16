// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/vocabulary.h"

#include <gtest/gtest.h>

namespace baton::tokenizer {
namespace {

using Kind = TokenKind;

TEST(Vocabulary, ChatMarkerIsControlWhateverTheFileCallsIt) {
  const auto vocabulary = Vocabulary::Make(
      {"<|im_end|>", "<td>", "|>"}, {Kind::kUserDefined, Kind::kUserDefined, Kind::kUserDefined});
  ASSERT_TRUE(vocabulary.ok());
  EXPECT_TRUE(vocabulary->IsControl(0));
  EXPECT_FALSE(vocabulary->IsControl(1));
  EXPECT_FALSE(vocabulary->IsControl(2));
  EXPECT_EQ(vocabulary->FindText("<|im_end|>"), std::nullopt);
  EXPECT_EQ(vocabulary->FindControl("<|im_end|>"), 0u);
}

TEST(Vocabulary, RefusesTablesOfDifferentLength) {
  EXPECT_EQ(Vocabulary::Make({"a", "b"}, {Kind::kNormal}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Vocabulary::Make({}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Vocabulary, AddedTokensFillTheGapBehindThePieces) {
  std::vector<std::string> texts = {"<unk>", "a"};
  std::vector<Kind> kinds = {Kind::kUnknown, Kind::kNormal};
  ASSERT_TRUE(Vocabulary::Add({{"<unk>", 0}, {"[END]", 4}, {"tool", 3, false}}, texts, kinds).ok());
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kUnknown, Kind::kNormal, Kind::kUnused,
                                      Kind::kUserDefined, Kind::kControl}));
  EXPECT_FALSE(Vocabulary::Add({{"far", 1u << 30}}, texts, kinds).ok());
}

TEST(UserDefinedTokens, TakesTheLongestAtTheLeftmostPlace) {
  const auto vocabulary =
      Vocabulary::Make({"ab", "abc", "x", "\x80"},
                       {Kind::kUserDefined, Kind::kUserDefined, Kind::kNormal, Kind::kUserDefined});
  ASSERT_TRUE(vocabulary.ok());
  const UserDefinedTokens tokens(*vocabulary);
  std::string cut;
  for (const auto& part : tokens.Split("xabcabé")) {
    cut += std::string(part.text) + (part.token.has_value() ? "*|" : "|");
  }
  EXPECT_EQ(cut, "x|abc*|ab*|é|");
  EXPECT_TRUE(tokens.Split("").empty());
}

}  // namespace
}  // namespace baton::tokenizer
