// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/spm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::tokenizer {
namespace {

using ::testing::ElementsAre;
using Kind = TokenKind;

struct Piece {
  std::string text;
  float score;
  Kind kind = Kind::kNormal;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> Make(const std::vector<Piece>& pieces,
                                                bool add_dummy_prefix = true) {
  std::vector<std::string> texts;
  std::vector<Kind> kinds;
  SpmOptions options;
  options.add_dummy_prefix = add_dummy_prefix;
  for (const Piece& piece : pieces) {
    texts.push_back(piece.text);
    kinds.push_back(piece.kind);
    options.scores.push_back(piece.score);
  }
  auto vocabulary = Vocabulary::Make(std::move(texts), std::move(kinds));
  if (!vocabulary.ok()) return vocabulary.status();
  return MakeSpmTokenizer(*std::move(vocabulary), std::move(options));
}

const std::vector<Piece>& Pieces() {
  static const auto* const pieces = new std::vector<Piece>{{"<unk>", 0, Kind::kUnknown},
                                                           {"</s>", 0, Kind::kControl},
                                                           {"<0x0A>", 0, Kind::kByte},
                                                           {"▁", -10},
                                                           {"a", -11},
                                                           {"b", -12},
                                                           {"▁a", -1},
                                                           {"ab", -2},
                                                           {"<", -20},
                                                           {"0", -20},
                                                           {"x", -20},
                                                           {"A", -20},
                                                           {">", -20},
                                                           {"/", -20},
                                                           {"s", -20}};
  return *pieces;
}

TEST(Spm, MergesTheHighestScoreFirst) {
  const auto tokenizer = Make(Pieces());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("ab"), ElementsAre(6, 5));      // ▁a beats ab
  EXPECT_THAT((*tokenizer)->Encode("ab", false), ElementsAre(7));  // no dummy prefix
  EXPECT_THAT((*tokenizer)->Encode(""), ElementsAre());
}

TEST(Spm, UnknownCharactersFallBackToBytesThenToUnknown) {
  const auto tokenizer = Make(Pieces());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->Encode("\n", false), ElementsAre(2));
  EXPECT_THAT((*tokenizer)->Encode("é", false), ElementsAre(0));
}

TEST(Spm, SpelledControlAndByteTokensStayText) {
  const auto tokenizer = Make(Pieces(), /*add_dummy_prefix=*/false);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->Encode("<0x0A>"), ElementsAre(8, 9, 10, 9, 11, 12));
  EXPECT_THAT((*tokenizer)->Encode("</s>"), ElementsAre(8, 13, 14, 12));
}

TEST(Spm, DecodesBytesSpacesAndUnknown) {
  const auto tokenizer = Make(Pieces());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(Decode(**tokenizer, {6, 2, 6, 1, 0}), "a\n a \u2047 ");
}

TEST(Spm, RefusesBadTables) {
  auto two_names = Pieces();
  two_names.push_back({"<0x0A>", 0, Kind::kByte});
  EXPECT_FALSE(Make(two_names).ok());
  auto not_finite = Pieces();
  not_finite[5].score = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Make(not_finite).ok());
  auto vocabulary = Vocabulary::Make({"a", "b"}, {});
  EXPECT_EQ(MakeSpmTokenizer(*std::move(vocabulary), {.scores = {1}, .sequence_tokens = {}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Spm, LongTextWithoutABreakIsMergedInAboutLinearTime) {
  const auto tokenizer = Make({{"a", 0}, {"aa", 1}, {"aaaa", 2}, {"▁", 0}});
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_GT((*tokenizer)->Encode(std::string(300'000, 'a')).size(), 70'000u);
}

}  // namespace
}  // namespace baton::tokenizer
