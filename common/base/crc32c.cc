// SPDX-License-Identifier: Apache-2.0
#include "common/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace baton {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t Portable(const std::byte* p, size_t n, uint32_t state) {
  for (; n > 0; --n, ++p) {
    state = (state >> 8) ^ kTable[(state ^ static_cast<uint32_t>(*p)) & 0xff];
  }
  return state;
}

#if defined(__x86_64__)

// Advancing a CRC state over n zero bytes is linear over GF(2): one 32x32 bit
// matrix, applied by four byte-indexed tables.
constexpr size_t kLane = 1024;

struct ZeroShift {
  std::array<std::array<uint32_t, 256>, 4> table{};

  explicit ZeroShift(size_t bytes) {
    const std::array<std::byte, 1> zero{};
    for (int byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t state = value << (8 * byte);
        for (size_t i = 0; i < bytes; ++i) state = Portable(zero.data(), 1, state);
        table[byte][value] = state;
      }
    }
  }

  uint32_t operator()(uint32_t state) const {
    return table[0][state & 0xff] ^ table[1][(state >> 8) & 0xff] ^ table[2][(state >> 16) & 0xff] ^
           table[3][state >> 24];
  }
};

uint64_t Load64(const std::byte* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Three independent lanes hide the instruction's latency of three cycles.
__attribute__((target("sse4.2"))) uint32_t Sse42(const std::byte* p, size_t n, uint32_t state) {
  static const ZeroShift shift(kLane);
  uint64_t a = state;
  for (; n >= 3 * kLane; n -= 3 * kLane, p += 3 * kLane) {
    uint64_t b = 0, c = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, Load64(p + i));
      b = _mm_crc32_u64(b, Load64(p + kLane + i));
      c = _mm_crc32_u64(c, Load64(p + 2 * kLane + i));
    }
    a = shift(static_cast<uint32_t>(a)) ^ b;
    a = shift(static_cast<uint32_t>(a)) ^ c;
  }
  for (; n >= 8; n -= 8, p += 8) a = _mm_crc32_u64(a, Load64(p));
  uint32_t tail = static_cast<uint32_t>(a);
  for (; n > 0; --n, ++p) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*p));
  return tail;
}

#endif

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  const uint32_t state = ~crc;
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return ~Sse42(bytes.data(), bytes.size(), state);
#endif
  return ~Portable(bytes.data(), bytes.size(), state);
}

}  // namespace baton
