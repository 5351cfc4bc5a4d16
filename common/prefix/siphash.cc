// SPDX-License-Identifier: Apache-2.0
#include "common/prefix/siphash.h"

#include <bit>
#include <cstring>

namespace baton::prefix {
namespace {

static_assert(std::endian::native == std::endian::little);

struct State {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
  uint64_t Squeeze() {
    for (int i = 0; i < 4; ++i) Round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

Hash128 SipHash(const Hash128& key, std::span<const std::byte> data) {
  State state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d ^ 0xee,
              key.low ^ 0x6c7967656e657261, key.high ^ 0x7465646279746573};
  const uint64_t length = data.size();
  while (data.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data.data(), sizeof(word));
    state.Absorb(word);
    data = data.subspan(sizeof(word));
  }
  uint64_t last = length << 56;
  if (!data.empty()) {
    uint64_t rest = 0;
    std::memcpy(&rest, data.data(), data.size());
    last |= rest;
  }
  state.Absorb(last);
  Hash128 hash;
  state.v2 ^= 0xee;
  hash.low = state.Squeeze();
  state.v1 ^= 0xdd;
  hash.high = state.Squeeze();
  return hash;
}

}  // namespace baton::prefix
