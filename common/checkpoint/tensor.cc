// SPDX-License-Identifier: Apache-2.0
// Tensor types and their values, as gguf.md and ggml define them.
#include <bit>
#include <cassert>
#include <cstring>

#include "common/checkpoint/checkpoint.h"

namespace baton::checkpoint {
namespace {

constexpr uint32_t kBlockValues = 32;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// IEEE 754 binary16, exactly; NaN stays NaN.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1F, mantissa = half & 0x3FF;
  if (exponent == 0) {  // zero and subnormals: mantissa · 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t rebased = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | rebased << 23 | mantissa << 13);
}

float LoadHalf(const std::byte* from) { return HalfToFloat(Load<uint16_t>(from)); }

void ReadF32(const std::byte* data, std::span<float> out) {
  std::memcpy(out.data(), data, out.size_bytes());
}

void ReadF16(const std::byte* data, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = LoadHalf(data + 2 * i);
}

void ReadBf16(const std::byte* data, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(data + 2 * i)) << 16);
  }
}

// Block: f16 scale, 32 signed bytes.
void ReadQ8_0(const std::byte* block, float* out) {
  const float scale = LoadHalf(block);
  for (uint32_t i = 0; i < kBlockValues; ++i) out[i] = Load<int8_t>(block + 2 + i) * scale;
}

// Low nibbles are values 0..15 of a block, high nibbles 16..31.
template <typename ToValue>
void ReadNibbles(const std::byte* nibbles, float* out, const ToValue& to_value) {
  for (uint32_t i = 0; i < kBlockValues / 2; ++i) {
    const auto both = std::to_integer<int>(nibbles[i]);
    out[i] = to_value(both & 15);
    out[i + kBlockValues / 2] = to_value(both >> 4);
  }
}

// Block: f16 scale, 16 bytes of nibbles; 8 stands for zero.
void ReadQ4_0(const std::byte* block, float* out) {
  const float scale = LoadHalf(block);
  ReadNibbles(block + 2, out, [=](int q) { return static_cast<float>(q - 8) * scale; });
}

// Block: f16 scale, f16 minimum, 16 bytes of nibbles.
void ReadQ4_1(const std::byte* block, float* out) {
  const float scale = LoadHalf(block), minimum = LoadHalf(block + 2);
  ReadNibbles(block + 4, out, [=](int q) { return static_cast<float>(q) * scale + minimum; });
}

template <typename ReadBlock>
void ReadBlocks(const std::byte* data, uint32_t block_bytes, std::span<float> out,
                const ReadBlock& read_block) {
  for (size_t i = 0; i < out.size(); i += kBlockValues, data += block_bytes) {
    read_block(data, out.data() + i);
  }
}

}  // namespace

std::string_view TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kF16:
      return "F16";
    case TensorType::kBf16:
      return "BF16";
    case TensorType::kQ8_0:
      return "Q8_0";
    case TensorType::kQ4_0:
      return "Q4_0";
    case TensorType::kQ4_1:
      return "Q4_1";
    case TensorType::kOther:
      break;
  }
  return "other";
}

BlockShape TensorBlock(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {1, 4};
    case TensorType::kF16:
    case TensorType::kBf16:
      return {1, 2};
    case TensorType::kQ8_0:
      return {kBlockValues, 34};
    case TensorType::kQ4_0:
      return {kBlockValues, 18};
    case TensorType::kQ4_1:
      return {kBlockValues, 20};
    case TensorType::kOther:
      break;
  }
  assert(false);
  return {1, 1};
}

void DequantizeRange(const TensorView& tensor, uint64_t begin, std::span<float> out) {
  const BlockShape block = TensorBlock(tensor.type);
  assert(begin % block.values == 0 && out.size() % block.values == 0);
  const std::byte* data = tensor.data.data() + begin / block.values * block.bytes;
  switch (tensor.type) {
    case TensorType::kF32:
      return ReadF32(data, out);
    case TensorType::kF16:
      return ReadF16(data, out);
    case TensorType::kBf16:
      return ReadBf16(data, out);
    case TensorType::kQ8_0:
      return ReadBlocks(data, block.bytes, out, ReadQ8_0);
    case TensorType::kQ4_0:
      return ReadBlocks(data, block.bytes, out, ReadQ4_0);
    case TensorType::kQ4_1:
      return ReadBlocks(data, block.bytes, out, ReadQ4_1);
    case TensorType::kOther:
      break;
  }
}

}  // namespace baton::checkpoint
