// SPDX-License-Identifier: Apache-2.0
// How a prefix of a prompt is named: a chain of hashes over its full blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/types.h"
#include "common/prefix/siphash.h"

namespace baton::prefix {

// Tokens of a block; the chain has one link per full block.
inline constexpr uint32_t kBlockTokens = 32;

// Longest salt of a tenant, in bytes.
inline constexpr size_t kMaxSaltBytes = 128;

// Hashes blocks under a key made of the tenant's salt. Each hash covers the
// one of the block before it, and so everything from position 0 on: who does
// not know the salt can neither predict nor recognize one. Equal on every
// machine, so that a router names a prefix as its workers do.
//
// Immutable and thread-safe.
class BlockHasher final {
 public:
  explicit BlockHasher(std::string_view salt);

  // Hash of a block of kBlockTokens `tokens` behind the one hashed to
  // `previous`; Hash128() before the first block.
  Hash128 Next(const Hash128& previous, std::span<const TokenId> tokens) const;

 private:
  Hash128 key_;
};

// What is told of a block's hash to routers: enough to steer by, since a wrong
// guess costs time and nothing else.
inline uint64_t DigestOf(const Hash128& hash) { return hash.low; }

// Digests of all full blocks of `tokens`, in order.
std::vector<uint64_t> DigestChain(std::string_view salt, std::span<const TokenId> tokens);

}  // namespace baton::prefix
