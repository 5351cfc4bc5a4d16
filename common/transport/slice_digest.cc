// SPDX-License-Identifier: Apache-2.0
#include "common/transport/slice_digest.h"

#include <bit>

namespace baton::transport {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

// One column per bit of a CRC.
using Matrix = std::array<uint32_t, 32>;

uint32_t Times(const Matrix& matrix, uint32_t vector) {
  uint32_t product = 0;
  for (int bit = 0; vector != 0; ++bit, vector >>= 1) {
    if (vector & 1) product ^= matrix[bit];
  }
  return product;
}

Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix product;
  for (int bit = 0; bit < 32; ++bit) product[bit] = Times(a, b[bit]);
  return product;
}

// Effect of one zero bit on a CRC state.
Matrix OneBit() {
  Matrix matrix;
  matrix[0] = kPolynomial;
  for (int bit = 1; bit < 32; ++bit) matrix[bit] = 1u << (bit - 1);
  return matrix;
}

Matrix Power(Matrix base, uint64_t exponent) {
  Matrix result;
  for (int bit = 0; bit < 32; ++bit) result[bit] = 1u << bit;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = Times(base, result);
    base = Times(base, base);
  }
  return result;
}

}  // namespace

CrcJoiner::CrcJoiner(size_t slice_bytes) {
  const Matrix append = Power(OneBit(), uint64_t{slice_bytes} * 8);
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      table_[byte][value] = Times(append, value << (8 * byte));
    }
  }
}

uint64_t DigestShare(uint32_t block, uint32_t layer, uint32_t crc) {
  // Two rounds, so that position and checksum reach every bit of each other.
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  const uint64_t position = uint64_t{block} << 32 | layer;
  return mix(mix(position + 0x9e3779b97f4a7c15u) ^ std::rotl(uint64_t{crc}, 17));
}

}  // namespace baton::transport
