// SPDX-License-Identifier: Apache-2.0
// The hashes behind the fake model, shared by the model, which keeps them in
// KV blocks, and its reference, which does not.
#pragma once

#include <cstdint>

#include "common/base/types.h"

namespace baton::model::fake {

// A bijection that scatters (the finalizer of SplitMix64).
constexpr uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
constexpr uint64_t Mix(uint64_t a, uint64_t b) { return Mix(Mix(a) ^ b); }

// Link of a layer's chain before position 0.
constexpr uint64_t ChainStart(uint64_t seed, uint32_t layer) { return Mix(seed, layer); }

// Link at `position`, from the one before it.
constexpr uint64_t ChainLink(uint64_t previous, TokenId token, uint32_t position) {
  return Mix(previous, Mix(token, position));
}

// Word `word` of row `row` (K and V of each head, in the order of the block)
// of a position whose link is `link`. Word 0 of row 0 is the link itself.
constexpr uint64_t KvWord(uint64_t link, uint32_t row, uint32_t word) {
  return row == 0 && word == 0 ? link : Mix(link, uint64_t{row} << 32 | word);
}

// What a word adds to the digest of a sequence. Depends on where it was read,
// so that swapped blocks do not cancel out.
constexpr uint64_t DigestTerm(uint64_t stored, uint32_t layer, uint32_t position, uint32_t row,
                              uint32_t word) {
  return Mix(stored, Mix(uint64_t{layer} << 32 | position, uint64_t{row} << 32 | word));
}

// Logit of `token` after a sequence with this digest: in [0, 8).
constexpr float Logit(uint64_t digest, TokenId token) {
  return static_cast<float>(Mix(digest, token) >> 40) * 0x1p-21f;
}

}  // namespace baton::model::fake
