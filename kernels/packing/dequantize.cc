// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/dequantize.h"

#include <bit>
#include <cstring>

namespace baton::kernels {
namespace {

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

float LoadHalf(const std::byte* from) { return HalfToFloat(Load<uint16_t>(from)); }

// A block: float16 scale, then 32 signed bytes.
void DequantizeQ8_0(const std::byte* block, float* out) {
  const float scale = LoadHalf(block);
  for (uint32_t i = 0; i < kGroup; ++i) out[i] = scale * Load<int8_t>(block + 2 + i);
}

// A block: float16 scale [, float16 minimum], 16 bytes; values 0 to 15 in the
// low nibbles, 16 to 31 in the high ones.
void DequantizeNibbles(const std::byte* nibbles, float scale, int offset, float minimum,
                       float* out) {
  for (uint32_t i = 0; i < kGroup / 2; ++i) {
    const auto both = static_cast<uint8_t>(nibbles[i]);
    out[i] = scale * static_cast<float>((both & 15) - offset) + minimum;
    out[i + kGroup / 2] = scale * static_cast<float>((both >> 4) - offset) + minimum;
  }
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void DequantizeRow(const WeightRows& rows, uint32_t row, float* out) {
  const std::byte* data = rows.data + row * rows.row_bytes;
  const uint32_t blocks = rows.inputs / kGroup;
  switch (rows.type) {
    case WeightType::kF32:
      std::memcpy(out, data, rows.inputs * sizeof(float));
      break;
    case WeightType::kF16:
      for (uint32_t i = 0; i < rows.inputs; ++i) out[i] = LoadHalf(data + 2 * i);
      break;
    case WeightType::kBf16:
      for (uint32_t i = 0; i < rows.inputs; ++i) out[i] = Bf16ToFloat(Load<uint16_t>(data + 2 * i));
      break;
    case WeightType::kQ8_0:
      for (uint32_t b = 0; b < blocks; ++b) DequantizeQ8_0(data + 34 * b, out + kGroup * b);
      break;
    case WeightType::kQ4_0:
      for (uint32_t b = 0; b < blocks; ++b, data += 18) {
        DequantizeNibbles(data + 2, LoadHalf(data), 8, 0, out + kGroup * b);
      }
      break;
    case WeightType::kQ4_1:
      for (uint32_t b = 0; b < blocks; ++b, data += 20) {
        DequantizeNibbles(data + 4, LoadHalf(data), 0, LoadHalf(data + 2), out + kGroup * b);
      }
      break;
  }
}

}  // namespace baton::kernels
