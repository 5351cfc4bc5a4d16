// SPDX-License-Identifier: Apache-2.0
#include "common/prefix/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "absl/strings/escaping.h"

namespace baton::prefix {
namespace {

std::string Hex(const Hash128& hash) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(&hash), sizeof(hash)));
}

// Key 00 01 … 0f and messages 00 01 … of the given lengths; expected values are
// OpenSSL's (`openssl mac -macopt size:16 … SIPHASH`).
TEST(SipHash, EqualsAnotherImplementation) {
  const Hash128 key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::vector<std::byte> message(144);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i);
  const std::pair<size_t, const char*> cases[] = {
      {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
      {8, "3b62a9ba6258f5610f83e264f31497b4"},  {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
      {63, "5150d1772f50834a503e069a973fbd7c"}, {144, "6167dfcb3a52852f77f168c65452fe5a"}};
  for (const auto& [length, expected] : cases) {
    EXPECT_EQ(Hex(SipHash(key, std::span(message).first(length))), expected) << length;
  }
}

std::vector<TokenId> Tokens(size_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(DigestChain, HasOneLinkPerFullBlock) {
  for (const size_t length : {0, 31, 32, 63, 64, 1000}) {
    EXPECT_EQ(DigestChain("", Tokens(length)).size(), length / kBlockTokens) << length;
  }
}

TEST(DigestChain, LinkCoversEverythingBeforeIt) {
  const std::vector<TokenId> tokens = Tokens(128);
  const auto chain = DigestChain("", tokens);
  for (size_t changed = 0; changed < tokens.size(); ++changed) {
    std::vector<TokenId> others = tokens;
    ++others[changed];
    const auto other = DigestChain("", others);
    for (size_t block = 0; block < chain.size(); ++block) {
      EXPECT_EQ(chain[block] == other[block], block < changed / kBlockTokens);
    }
  }
}

// Salt and tokens are framed: no part of one can pass as part of the other.
TEST(DigestChain, TenantsHaveNoLinkInCommon) {
  std::set<uint64_t> seen;
  const std::string salts[] = {"", "org_1", "org_12345", "2345", std::string("a\0", 2), "a"};
  for (const std::string& salt : salts) {
    for (const uint64_t link : DigestChain(salt, Tokens(320))) seen.insert(link);
  }
  EXPECT_EQ(seen.size(), 60u);
}

}  // namespace
}  // namespace baton::prefix
