// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast
// short-input PRF", 2012, and the authors' 128-bit variant).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace baton::prefix {

struct Hash128 {
  uint64_t low = 0, high = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Hash128& hash) {
    return H::combine(std::move(h), hash.low, hash.high);
  }
};

// The hash of `data` under `key`; words are read little-endian on any machine
// that this builds for.
Hash128 SipHash(const Hash128& key, std::span<const std::byte> data);

}  // namespace baton::prefix
