// SPDX-License-Identifier: Apache-2.0
// Checksums of KV slices: of one (block, layer), of several in a row, and of a
// whole hand-off in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton::transport {

// Turns the CRC-32C of slices of one fixed size into the CRC of their
// concatenation without reading them again: appending n bytes multiplies the
// CRC by x^(8n) modulo the polynomial, which is linear over GF(2) and so one
// lookup per byte of the CRC.
class CrcJoiner {
 public:
  explicit CrcJoiner(size_t slice_bytes);

  // CRC of a || b, where b is one slice long.
  uint32_t Join(uint32_t a, uint32_t b) const {
    return table_[0][a & 0xff] ^ table_[1][(a >> 8) & 0xff] ^ table_[2][(a >> 16) & 0xff] ^
           table_[3][a >> 24] ^ b;
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_{};
};

// A slice's share of the digest of a hand-off, which is the exclusive-or of
// all shares: bound to the position, so that two slices that changed places
// do not cancel out. The mixer is the finalizer of splitmix64.
uint64_t DigestShare(uint32_t block, uint32_t layer, uint32_t crc);

}  // namespace baton::transport
