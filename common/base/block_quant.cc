// SPDX-License-Identifier: Apache-2.0
#include "common/base/block_quant.h"

#include <algorithm>
#include <cstring>

namespace baton {
namespace {

int Byte(const std::byte* from) { return std::to_integer<int>(*from); }

void SetScale(float scale, float offset, QuantGroup* out) {
  out->scales[0] = out->scales[1] = scale;
  out->offset = offset;
}

// Q8_0: f16 scale, 32 signed bytes.
void ReadQ8_0(const std::byte* block, uint32_t /*group*/, QuantGroup* out) {
  SetScale(LoadHalfFloat(block), 0, out);
  std::memcpy(out->codes, block + 2, kQuantGroup);
}

// Low nibbles are codes 0 to 15 of a group, high nibbles 16 to 31; `zero` is the
// nibble that stands for code 0.
void ReadNibbles(const std::byte* nibbles, int zero, int8_t* codes) {
  for (uint32_t i = 0; i < kQuantGroup / 2; ++i) {
    codes[i] = static_cast<int8_t>((Byte(nibbles + i) & 15) - zero);
    codes[i + kQuantGroup / 2] = static_cast<int8_t>((Byte(nibbles + i) >> 4) - zero);
  }
}

// Q4_0: f16 scale, nibbles; 8 stands for zero.
void ReadQ4_0(const std::byte* block, uint32_t /*group*/, QuantGroup* out) {
  SetScale(LoadHalfFloat(block), 0, out);
  ReadNibbles(block + 2, 8, out->codes);
}

// Q4_1: f16 scale, f16 minimum, nibbles.
void ReadQ4_1(const std::byte* block, uint32_t /*group*/, QuantGroup* out) {
  SetScale(LoadHalfFloat(block), LoadHalfFloat(block + 2), out);
  ReadNibbles(block + 4, 0, out->codes);
}

// Nibbles behind 32 bits, one fifth bit per code.
void ReadFiveBits(const std::byte* bits, int zero, int8_t* codes) {
  uint32_t high;
  std::memcpy(&high, bits, sizeof(high));
  ReadNibbles(bits + sizeof(high), zero, codes);
  for (uint32_t i = 0; i < kQuantGroup; ++i) {
    codes[i] = static_cast<int8_t>(codes[i] + static_cast<int>(high >> i & 1) * 16);
  }
}

// Q5_0: f16 scale, fifth bits, nibbles; 16 stands for zero.
void ReadQ5_0(const std::byte* block, uint32_t /*group*/, QuantGroup* out) {
  SetScale(LoadHalfFloat(block), 0, out);
  ReadFiveBits(block + 2, 16, out->codes);
}

// Q5_1: f16 scale, f16 minimum, fifth bits, nibbles.
void ReadQ5_1(const std::byte* block, uint32_t /*group*/, QuantGroup* out) {
  SetScale(LoadHalfFloat(block), LoadHalfFloat(block + 2), out);
  ReadFiveBits(block + 4, 0, out->codes);
}

// Of two neighbouring groups the first has the low nibbles of 32 bytes, the
// second the high ones.
void ReadGroupNibbles(const std::byte* nibbles, uint32_t group, int8_t* codes) {
  const std::byte* from = nibbles + size_t{group} / 2 * kQuantGroup;
  for (uint32_t i = 0; i < kQuantGroup; ++i) {
    codes[i] = static_cast<int8_t>(Byte(from + i) >> (group % 2 * 4) & 15);
  }
}

void SetKScale(const std::byte* block, uint32_t group, QuantGroup* out) {
  const KScales k = UnpackKScales(block + kKPackedAt);
  SetScale(LoadHalfFloat(block + kKScaleAt) * k.scales[group],
           -(LoadHalfFloat(block + kKMinimumAt) * k.minima[group]), out);
}

// Q4_K: f16 d, f16 dmin, 12 bytes of scales, 128 bytes of nibbles.
void ReadQ4K(const std::byte* block, uint32_t group, QuantGroup* out) {
  SetKScale(block, group, out);
  ReadGroupNibbles(block + 16, group, out->codes);
}

// Q5_K: as Q4_K, with 32 bytes before the nibbles: bit g of byte i is the fifth
// bit of value i of group g.
void ReadQ5K(const std::byte* block, uint32_t group, QuantGroup* out) {
  SetKScale(block, group, out);
  ReadGroupNibbles(block + 48, group, out->codes);
  for (uint32_t i = 0; i < kQuantGroup; ++i) {
    const int high = Byte(block + 16 + i) >> group & 1;
    out->codes[i] = static_cast<int8_t>(out->codes[i] + high * 16);
  }
}

// Q6_K: two halves of 128 values, each of 64 bytes of nibbles (groups 0 and 1
// low, 2 and 3 high) and 32 bytes of high bit pairs (bits 2 g of byte i: group
// g); all nibbles stand first, then all pairs, then 16 s8 scales, one per 16
// values, then f16 d. 32 stands for zero.
void ReadQ6K(const std::byte* block, uint32_t group, QuantGroup* out) {
  const uint32_t half = group / 4, in_half = group % 4;
  const std::byte* low = block + half * 64 + in_half % 2 * 32;
  const std::byte* high = block + 128 + half * 32;
  for (uint32_t i = 0; i < kQuantGroup; ++i) {
    const int nibble = Byte(low + i) >> (in_half / 2 * 4) & 15;
    const int pair = Byte(high + i) >> (in_half * 2) & 3;
    out->codes[i] = static_cast<int8_t>((nibble | pair << 4) - 32);
  }
  int8_t scales[2];
  std::memcpy(scales, block + kQ6KScalesAt + size_t{group} * 2, sizeof(scales));
  const float d = LoadHalfFloat(block + kQ6KScaleAt);
  for (uint32_t i = 0; i < 2; ++i) out->scales[i] = d * scales[i];
  out->offset = 0;
}

}  // namespace

const BlockQuant kQuantQ8_0{"Q8_0", 32, 34, ReadQ8_0};
const BlockQuant kQuantQ4_0{"Q4_0", 32, 18, ReadQ4_0};
const BlockQuant kQuantQ4_1{"Q4_1", 32, 20, ReadQ4_1};
const BlockQuant kQuantQ5_0{"Q5_0", 32, 22, ReadQ5_0};
const BlockQuant kQuantQ5_1{"Q5_1", 32, 24, ReadQ5_1};
const BlockQuant kQuantQ4K{"Q4_K", 256, 144, ReadQ4K};
const BlockQuant kQuantQ5K{"Q5_K", 256, 176, ReadQ5K};
const BlockQuant kQuantQ6K{"Q6_K", 256, 210, ReadQ6K};

void Dequantize(const BlockQuant& quant, const std::byte* blocks, uint64_t begin,
                std::span<float> out) {
  QuantGroup group;
  while (!out.empty()) {
    ReadQuantGroup(quant, blocks, begin / kQuantGroup, &group);
    const auto first = static_cast<uint32_t>(begin % kQuantGroup);
    const size_t count = std::min<size_t>(kQuantGroup - first, out.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t at = first + i;
      out[i] = group.scales[at / 16] * static_cast<float>(group.codes[at]) + group.offset;
    }
    out = out.subspan(count);
    begin += count;
  }
}

// Scales of groups 0-3 are the low 6 bits of bytes 0-3, minima those of bytes
// 4-7. Of groups 4-7, bytes 8-11 hold the low 4 bits (scale low, minimum high)
// and the top 2 bits of bytes 0-3 and 4-7 the rest.
KScales UnpackKScales(const std::byte* packed) {
  KScales k;
  for (uint32_t i = 0; i < 4; ++i) {
    const int a = Byte(packed + i), b = Byte(packed + 4 + i), c = Byte(packed + 8 + i);
    k.scales[i] = static_cast<uint8_t>(a & 63);
    k.minima[i] = static_cast<uint8_t>(b & 63);
    k.scales[4 + i] = static_cast<uint8_t>((c & 15) | (a >> 6) << 4);
    k.minima[4 + i] = static_cast<uint8_t>((c >> 4) | (b >> 6) << 4);
  }
  return k;
}

}  // namespace baton
