// SPDX-License-Identifier: Apache-2.0
#include "common/prefix/block_hash.h"

#include <algorithm>
#include <array>

namespace baton::prefix {
namespace {

// Sets these hashes apart from any other use of the function; no secret.
constexpr Hash128 kDomain{0x6261746f6e2d7076, 0x70726566697831};

}  // namespace

BlockHasher::BlockHasher(std::string_view salt)
    : key_(SipHash(kDomain, std::as_bytes(std::span(salt.data(), salt.size())))) {}

Hash128 BlockHasher::Next(const Hash128& previous, std::span<const TokenId> tokens) const {
  static_assert(sizeof(TokenId) == 4);
  std::array<uint32_t, 4 + kBlockTokens> words{
      static_cast<uint32_t>(previous.low), static_cast<uint32_t>(previous.low >> 32),
      static_cast<uint32_t>(previous.high), static_cast<uint32_t>(previous.high >> 32)};
  std::copy_n(tokens.begin(), kBlockTokens, words.begin() + 4);
  return SipHash(key_, std::as_bytes(std::span(words)));
}

std::vector<uint64_t> DigestChain(std::string_view salt, std::span<const TokenId> tokens) {
  const BlockHasher hasher(salt);
  std::vector<uint64_t> chain;
  chain.reserve(tokens.size() / kBlockTokens);
  Hash128 hash;
  for (; tokens.size() >= kBlockTokens; tokens = tokens.subspan(kBlockTokens)) {
    hash = hasher.Next(hash, tokens.first(kBlockTokens));
    chain.push_back(DigestOf(hash));
  }
  return chain;
}

}  // namespace baton::prefix
