// SPDX-License-Identifier: Apache-2.0
#include "common/base/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace baton {
namespace {

std::vector<std::byte> Bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(Crc32c, EqualsTheValuesOfRfc3720) {
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0x00})), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  std::vector<std::byte> ascending(32);
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
}

TEST(Crc32c, ContinuesOverPiecesOfAnyLength) {
  std::vector<std::byte> bytes(10'000);
  uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  const uint32_t whole = Crc32c(bytes);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{7}, size_t{3071}, size_t{3072},
                           size_t{3073}, size_t{9'999}, bytes.size()}) {
    const std::span<const std::byte> all(bytes);
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), whole) << "cut at " << cut;
  }
}

TEST(Crc32c, NoticesEverySingleFlippedBit) {
  std::vector<std::byte> bytes(4'096, std::byte{0x5a});
  const uint32_t whole = Crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 97) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(Crc32c(bytes), whole) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace baton
