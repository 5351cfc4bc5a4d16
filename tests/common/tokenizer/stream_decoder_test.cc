// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "common/base/utf8.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::tokenizer {
namespace {

// Each token stands for the bytes given; 100 and above are control tokens.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> pieces, bool drops_leading_space = false)
      : pieces_(std::move(pieces)), drops_leading_space_(drops_leading_space) {}

  std::string_view kind() const override { return "bpe"; }
  uint32_t size() const override { return static_cast<uint32_t>(pieces_.size()); }
  std::vector<TokenId> Encode(std::string_view, bool) const override { return {}; }
  std::string TokenBytes(TokenId id) const override { return id < size() ? pieces_[id] : ""; }
  bool drops_leading_space() const override { return drops_leading_space_; }
  std::optional<TokenId> TokenByName(std::string_view) const override { return {}; }
  bool IsControl(TokenId id) const override { return id >= 100; }
  const std::vector<TokenId>& prefix() const override { return none_; }
  const std::vector<TokenId>& end_tokens() const override { return none_; }

 private:
  std::vector<std::string> pieces_;
  bool drops_leading_space_;
  std::vector<TokenId> none_;
};

TEST(StreamDecoder, HoldsAnIncompleteCharacterBack) {
  const FakeTokenizer tokenizer({"\xF0", "\x9F", "\x98", "\x8A"});  // U+1F60A
  StreamDecoder decoder(&tokenizer);
  EXPECT_EQ(decoder.Push(0), "");
  EXPECT_EQ(decoder.Push(1), "");
  EXPECT_EQ(decoder.Push(2), "");
  EXPECT_EQ(decoder.Push(3), "\xF0\x9F\x98\x8A");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoder, FlushReplacesEveryHeldByte) {
  const FakeTokenizer tokenizer({"\xF0\x9F\x98"});
  StreamDecoder decoder(&tokenizer);
  EXPECT_EQ(decoder.Push(0), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoder, ByteThatCanNotGoOnIsReplacedAtOnce) {
  const FakeTokenizer tokenizer({"\xED", "\xA0", "ok"});  // the start of a surrogate
  StreamDecoder decoder(&tokenizer);
  EXPECT_EQ(decoder.Push(0), "");
  EXPECT_EQ(decoder.Push(1), "\uFFFD\uFFFD");
  EXPECT_EQ(decoder.Push(2), "ok");
}

TEST(StreamDecoder, DropsOneSpaceOfTheFirstPieceAlone) {
  const FakeTokenizer tokenizer({"  a", " b"}, /*drops_leading_space=*/true);
  StreamDecoder decoder(&tokenizer);
  EXPECT_EQ(decoder.Push(100), "");  // control tokens do not count as first
  EXPECT_EQ(decoder.Push(0), " a");
  EXPECT_EQ(decoder.Push(1), " b");
}

TEST(StreamDecoder, KeepsTheSpaceOfATokenizerWithoutDummyPrefix) {
  const FakeTokenizer tokenizer({" a"});
  EXPECT_EQ(Decode(tokenizer, {0}), " a");
}

TEST(StreamDecoder, IdsOutsideTheVocabularyAreSilent) {
  const FakeTokenizer tokenizer({"a"});
  EXPECT_EQ(Decode(tokenizer, {0, 50, 0, UINT32_MAX}), "aa");
}

TEST(StreamDecoder, PiecesAreValidAndJoinToTheWholeForAnyBytes) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 100; ++byte) {
    // A mix that meets every edge of the table of well-formed sequences.
    constexpr unsigned char kEdges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                        0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                        0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    bytes.emplace_back(1, static_cast<char>(kEdges[byte % sizeof(kEdges)]));
  }
  const FakeTokenizer tokenizer(bytes);
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string whole, joined;
    StreamDecoder decoder(&tokenizer);
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      const TokenId id = (state >> 16) % 100;
      whole += bytes[id];
      const std::string piece = decoder.Push(id);
      ASSERT_TRUE(IsValidUtf8(piece));
      joined += piece;
    }
    joined += decoder.Flush();
    ASSERT_EQ(joined, ReplaceInvalidUtf8(whole));
  }
}

}  // namespace
}  // namespace baton::tokenizer
