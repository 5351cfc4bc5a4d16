// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/byte_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::tokenizer {
namespace {

using ::testing::ElementsAre;
using Kind = TokenKind;

// GPT-2's printable character of a byte, for the bytes these tests use.
std::string Printable(char byte) {
  if (byte == ' ') return "Ġ";
  if (byte == '\n') return "Ċ";
  return std::string(1, byte);
}

// Tokens: a b c space newline, "ab", "bc", "abc", "Ġab", <|end|>.
absl::StatusOr<std::unique_ptr<Tokenizer>> Make(const std::string& pre_tokenizer = "gpt-2") {
  auto vocabulary = Vocabulary::Make(
      {"a", "b", "c", Printable(' '), Printable('\n'), "ab", "bc", "abc", "Ġab", "<|end|>"},
      {Kind::kNormal, Kind::kNormal, Kind::kNormal, Kind::kNormal, Kind::kNormal, Kind::kNormal,
       Kind::kNormal, Kind::kNormal, Kind::kNormal, Kind::kControl});
  ByteBpeOptions options;
  options.pre_tokenizer = pre_tokenizer;
  options.merges = {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"Ġ", "ab"}};
  options.sequence_tokens.end_tokens = {9};
  return MakeByteBpeTokenizer(*std::move(vocabulary), std::move(options));
}

TEST(ByteBpe, MergesTheBestRankedPairFirst) {
  const auto tokenizer = Make();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  // "ab" would be on the left, but "bc" has the better rank.
  EXPECT_THAT((*tokenizer)->Encode("abc"), ElementsAre(7));
  EXPECT_THAT((*tokenizer)->Encode("abbc"), ElementsAre(5, 6));
  EXPECT_THAT((*tokenizer)->Encode("c ab\n"), ElementsAre(2, 8, 4));
  EXPECT_THAT((*tokenizer)->Encode(""), ElementsAre());
}

TEST(ByteBpe, WholeWordIsTakenWithoutMergingWhereMergesAreIgnored) {
  auto vocabulary = Vocabulary::Make({"a", "b", "ab"}, {});
  ByteBpeOptions options;
  options.pre_tokenizer = "llama-bpe";
  const auto tokenizer = MakeByteBpeTokenizer(*std::move(vocabulary), std::move(options));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->Encode("ab"), ElementsAre(2));
  EXPECT_THAT((*tokenizer)->Encode("aab"), ElementsAre(0, 0, 1));
}

TEST(ByteBpe, ControlTokenInTextStaysText) {
  auto vocabulary = Vocabulary::Make({"<", "|", "e", "n", "d", ">", "<|end|>"},
                                     {Kind::kNormal, Kind::kNormal, Kind::kNormal, Kind::kNormal,
                                      Kind::kNormal, Kind::kNormal, Kind::kControl});
  ByteBpeOptions options;
  options.pre_tokenizer = "gpt-2";
  const auto tokenizer = MakeByteBpeTokenizer(*std::move(vocabulary), std::move(options));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->Encode("<|end|>"), ElementsAre(0, 1, 2, 3, 4, 1, 5));
  EXPECT_EQ((*tokenizer)->TokenByName("<|end|>"), 6u);
  EXPECT_EQ((*tokenizer)->TokenBytes(6), "");
}

TEST(ByteBpe, RefusesMergesOfTokensThatDoNotExist) {
  auto vocabulary = Vocabulary::Make({"a", "b"}, {});
  ByteBpeOptions options;
  options.pre_tokenizer = "gpt-2";
  options.merges = {{"a", "b"}};
  EXPECT_EQ(MakeByteBpeTokenizer(*std::move(vocabulary), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ByteBpe, RefusesSpecialTokensOutsideTheVocabulary) {
  auto vocabulary = Vocabulary::Make({"a"}, {});
  ByteBpeOptions options;
  options.pre_tokenizer = "gpt-2";
  options.sequence_tokens.end_tokens = {1};
  EXPECT_EQ(MakeByteBpeTokenizer(*std::move(vocabulary), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ByteBpe, LongWordIsMergedInAboutLinearTime) {
  auto vocabulary = Vocabulary::Make({"a", "aa", "aaaa"}, {});
  ByteBpeOptions options;
  options.pre_tokenizer = "gpt-2";
  options.merges = {{"a", "a"}, {"aa", "aa"}};
  const auto tokenizer = MakeByteBpeTokenizer(*std::move(vocabulary), std::move(options));
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<TokenId> ids = (*tokenizer)->Encode(std::string(300'000, 'a'));
  EXPECT_EQ(ids, std::vector<TokenId>(75'000, 2));
}

}  // namespace
}  // namespace baton::tokenizer
