// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/avx512/stored_weights.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace baton::kernels::testing {
namespace {

size_t RowBytes(WeightType type, uint32_t inputs) {
  switch (type) {
    case WeightType::kF32:
      return inputs * size_t{4};
    case WeightType::kF16:
    case WeightType::kBf16:
      return inputs * size_t{2};
    case WeightType::kQ8_0:
      return inputs / 32 * size_t{34};
    case WeightType::kQ4_0:
      return inputs / 32 * size_t{18};
    case WeightType::kQ4_1:
      return inputs / 32 * size_t{20};
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

void FillBlocks(StoredWeights& w, std::mt19937& random) {
  const bool eight = w.type == WeightType::kQ8_0, affine = w.type == WeightType::kQ4_1;
  const size_t header = affine ? 4 : 2, block_bytes = header + (eight ? 32 : 16);
  for (std::byte& byte : w.data) byte = static_cast<std::byte>(random());
  for (size_t b = 0; b < w.values.size() / 32; ++b) {
    std::byte* block = &w.data[b * block_bytes];
    for (size_t h = 0; h < header; h += 2) {
      const uint16_t half = RandomHalf(random);
      std::memcpy(block + h, &half, 2);
    }
    const double d = HalfToDouble(ReadU16(block));
    const double m = affine ? HalfToDouble(ReadU16(block + 2)) : eight ? 0 : -8 * d;
    for (size_t k = 0; k < 32; ++k) {
      const int byte = static_cast<int>(block[header + (eight ? k : k % 16)]);
      const int nibble = k < 16 ? byte % 16 : byte / 16;
      w.values[b * 32 + k] = d * (eight ? static_cast<int8_t>(byte) : nibble) + m;
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

StoredWeights RandomWeights(WeightType type, uint32_t outputs, uint32_t inputs, uint32_t seed) {
  const size_t row_bytes = RowBytes(type, inputs);
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
