// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/avx512/stored_weights.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace baton::kernels::testing {
namespace {

uint32_t BlockBytes(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return 4;
    case WeightType::kF16:
    case WeightType::kBf16:
      return 2;
    case WeightType::kQ8_0:
      return 34;
    case WeightType::kQ4_0:
      return 18;
    case WeightType::kQ4_1:
      return 20;
    case WeightType::kQ5_0:
      return 22;
    case WeightType::kQ5_1:
      return 24;
    case WeightType::kQ4K:
      return 144;
    case WeightType::kQ5K:
      return 176;
    case WeightType::kQ6K:
      return 210;
  }
  return 0;
}

// A half of either sign between 2^-7 and 1.
uint16_t RandomHalf(std::mt19937& random) {
  return static_cast<uint16_t>((random() & 0x83ff) | (8 + random() % 7) << 10);
}

uint16_t ReadU16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}

void FillFloats(StoredWeights& w, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.3f);
  for (size_t i = 0; i < w.values.size(); ++i) {
    const float value = normal(random);
    if (w.type == WeightType::kF32) {
      std::memcpy(&w.data[i * 4], &value, 4);
      w.values[i] = value;
    } else if (w.type == WeightType::kF16) {
      const uint16_t bits = RandomHalf(random);
      std::memcpy(&w.data[i * 2], &bits, 2);
      w.values[i] = HalfToDouble(bits);
    } else {
      const uint16_t bits = DoubleToBf16(value);
      std::memcpy(&w.data[i * 2], &bits, 2);
      w.values[i] = Bf16ToDouble(bits);
    }
  }
}

// Bit `index` of a string of bits, lowest first.
int Bit(const std::byte* bytes, size_t index) {
  return std::to_integer<int>(bytes[index / 8]) >> (index % 8) & 1;
}

// A block is d, for affine types m, for five-bit types 32 fifth bits, codes.
void DecodeSmallBlock(WeightType type, const std::byte* block, double* values) {
  const bool eight = type == WeightType::kQ8_0;
  const bool five = type == WeightType::kQ5_0 || type == WeightType::kQ5_1;
  const bool affine = type == WeightType::kQ4_1 || type == WeightType::kQ5_1;
  const std::byte* high = block + (affine ? 4 : 2);
  const std::byte* codes = high + (five ? 4 : 0);
  const double d = HalfToDouble(ReadU16(block));
  const double m = affine ? HalfToDouble(ReadU16(block + 2)) : eight ? 0 : five ? -16 * d : -8 * d;
  for (size_t k = 0; k < 32; ++k) {
    const int byte = std::to_integer<int>(codes[eight ? k : k % 16]);
    const int nibble = (k < 16 ? byte % 16 : byte / 16) + (five ? 16 * Bit(high, k) : 0);
    values[k] = d * (eight ? static_cast<int8_t>(byte) : nibble) + m;
  }
}

// Value k of a block of 256.
double DecodeK(WeightType type, const std::byte* block, size_t k) {
  const size_t group = k / 32, in_group = k % 32;
  const auto byte = [block](size_t at) { return std::to_integer<int>(block[at]); };
  if (type == WeightType::kQ6K) {
    const size_t half = k / 128, in_half = k % 128;
    const int low = byte(half * 64 + in_half % 64) >> (in_half / 64 * 4) & 15;
    const int high = byte(128 + half * 32 + in_group) >> (in_half / 32 * 2) & 3;
    return HalfToDouble(ReadU16(block + 208)) * static_cast<int8_t>(byte(192 + k / 16)) *
           (low + 16 * high - 32);
  }
  int scale, minimum;
  if (group < 4) {
    scale = byte(4 + group) % 64;
    minimum = byte(8 + group) % 64;
  } else {
    scale = byte(8 + group) % 16 + byte(group) / 64 * 16;
    minimum = byte(8 + group) / 16 + byte(4 + group) / 64 * 16;
  }
  const bool five = type == WeightType::kQ5K;
  const int nibble = byte((five ? 48 : 16) + group / 2 * 32 + in_group) >> (group % 2 * 4) & 15;
  const int code = nibble + (five ? 16 * Bit(block + 16 + in_group, group) : 0);
  return HalfToDouble(ReadU16(block)) * scale * code - HalfToDouble(ReadU16(block + 2)) * minimum;
}

void FillBlocks(StoredWeights& w, std::mt19937& random) {
  const size_t block_bytes = BlockBytes(w.type), block_values = BlockInputs(w.type);
  const bool two_halves = w.type == WeightType::kQ4_1 || w.type == WeightType::kQ5_1 ||
                          w.type == WeightType::kQ4K || w.type == WeightType::kQ5K;
  for (std::byte& byte : w.data) byte = static_cast<std::byte>(random());
  for (size_t b = 0; b < w.values.size() / block_values; ++b) {
    std::byte* block = &w.data[b * block_bytes];
    std::byte* halves = block + (w.type == WeightType::kQ6K ? 208 : 0);
    for (size_t h = 0; h < (two_halves ? 2 : 1); ++h) {
      const uint16_t half = RandomHalf(random);
      std::memcpy(halves + h * 2, &half, 2);
    }
    double* values = &w.values[b * block_values];
    if (block_values == 32) {
      DecodeSmallBlock(w.type, block, values);
    } else {
      for (size_t k = 0; k < block_values; ++k) values[k] = DecodeK(w.type, block, k);
    }
  }
}

}  // namespace

double HalfToDouble(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

double Bf16ToDouble(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t DoubleToBf16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  const uint32_t below = bits & 0xffff;
  const bool up = below > 0x8000 || (below == 0x8000 && (bits >> 16) % 2 == 1);
  return static_cast<uint16_t>((bits >> 16) + up);
}

WeightRows StoredWeights::rows() const {
  return {
      .type = type, .data = data.data(), .row_bytes = row_bytes, .rows = outputs, .inputs = inputs};
}

uint32_t BlockInputs(WeightType type) {
  if (BlockBytes(type) <= 4) return 1;
  return BlockBytes(type) <= 34 ? 32 : 256;
}

StoredWeights RandomWeights(WeightType type, uint32_t outputs, uint32_t inputs, uint32_t seed) {
  const size_t row_bytes = inputs / BlockInputs(type) * size_t{BlockBytes(type)};
  StoredWeights w{type,
                  outputs,
                  inputs,
                  row_bytes,
                  std::vector<std::byte>(outputs * row_bytes),
                  std::vector<double>(size_t{outputs} * inputs)};
  std::mt19937 random(seed);
  if (type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBf16) {
    FillFloats(w, random);
  } else {
    FillBlocks(w, random);
  }
  return w;
}

}  // namespace baton::kernels::testing
