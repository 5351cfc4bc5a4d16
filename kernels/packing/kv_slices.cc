// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/kv_slices.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/packing/dequantize.h"
#include "kernels/packing/hadamard.h"
#include "kernels/packing/int8_rows.h"

namespace baton::kernels {
namespace {

// Index of (dim, slot) in the bf16 slices.
size_t KeyPair(uint32_t dim, uint32_t slot) {
  return (size_t{dim / 2} * kBlockTokens + slot) * 2 + dim % 2;
}
size_t ValuePair(uint32_t dim, uint32_t slot, uint32_t head_dim) {
  return (size_t{slot / 2} * head_dim + dim) * 2 + slot % 2;
}

Int8Scale ScaleOfRow(const float* row, uint32_t size) {
  int32_t max = 0;
  for (uint32_t i = 0; i < size; ++i) max = std::max(max, MagnitudeBits(row[i]));
  return ScaleOf(max);
}

float ScaleAt(const std::byte* slice, uint32_t head_dim, uint32_t slot) {
  uint16_t bits;
  std::memcpy(&bits, Int8Scales(slice, head_dim) + slot * sizeof(bits), sizeof(bits));
  return Bf16ToFloat(bits);
}

// Two bytes at a time: another thread may write the scale beside it.
void PutScale(std::byte* slice, uint32_t head_dim, uint32_t slot, uint16_t bits) {
  std::memcpy(slice + size_t{kBlockTokens} * head_dim + slot * sizeof(bits), &bits, sizeof(bits));
}

// One token of an int8 V slice.
void StoreInt8Row(const float* row, uint32_t head_dim, uint32_t slot, std::byte* slice) {
  const Int8Scale scale = ScaleOfRow(row, head_dim);
  auto* codes = reinterpret_cast<int8_t*>(slice) + size_t{slot} * head_dim;
  for (uint32_t d = 0; d < head_dim; ++d) codes[d] = CodeOf(row[d], scale.inverse);
  PutScale(slice, head_dim, slot, scale.bits);
}

// An int8 K slice from [head_dim][32 tokens].
void StoreInt8Columns(const float* columns, uint32_t head_dim, std::byte* slice) {
  std::array<int32_t, kBlockTokens> max{};
  for (uint32_t d = 0; d < head_dim; ++d) {
    const float* row = columns + size_t{d} * kBlockTokens;
    for (uint32_t t = 0; t < kBlockTokens; ++t) max[t] = std::max(max[t], MagnitudeBits(row[t]));
  }
  std::array<float, kBlockTokens> inverse;
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    const Int8Scale scale = ScaleOf(max[t]);
    inverse[t] = scale.inverse;
    PutScale(slice, head_dim, t, scale.bits);
  }
  auto* codes = reinterpret_cast<int8_t*>(slice);
  for (uint32_t d = 0; d < head_dim; ++d, columns += kBlockTokens, codes += kBlockTokens) {
    for (uint32_t t = 0; t < kBlockTokens; ++t) codes[t] = CodeOf(columns[t], inverse[t]);
  }
}

}  // namespace

void F32Slices::Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot,
                       std::byte* k_slice, std::byte* v_slice) const {
  float* keys = reinterpret_cast<float*>(k_slice);
  for (uint32_t d = 0; d < head_dim; ++d) keys[size_t{d} * kBlockTokens + slot] = k[d];
  std::memcpy(v_slice + size_t{slot} * head_dim * sizeof(float), v, head_dim * sizeof(float));
}

void Bf16Slices::Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot,
                        std::byte* k_slice, std::byte* v_slice) const {
  auto* keys = reinterpret_cast<uint16_t*>(k_slice);
  auto* values = reinterpret_cast<uint16_t*>(v_slice);
  for (uint32_t d = 0; d < head_dim; ++d) {
    keys[KeyPair(d, slot)] = FloatToBf16(k[d]);
    values[ValuePair(d, slot, head_dim)] = FloatToBf16(v[d]);
  }
}

void Int8Slices::Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot,
                        std::byte* k_slice, std::byte* v_slice) const {
  thread_local std::vector<float> rotated;
  rotated.assign(k, k + head_dim);
  HadamardRow(rotated.data(), head_dim);
  const Int8Scale scale = ScaleOfRow(rotated.data(), head_dim);
  auto* keys = reinterpret_cast<int8_t*>(k_slice) + slot;
  for (uint32_t d = 0; d < head_dim; ++d) {
    keys[size_t{d} * kBlockTokens] = CodeOf(rotated[d], scale.inverse);
  }
  PutScale(k_slice, head_dim, slot, scale.bits);
  StoreInt8Row(v, head_dim, slot, v_slice);
}

void Int8Slices::PrepareQuery(float* query, uint32_t head_dim) const {
  HadamardRow(query, head_dim);
}

void ExpandKeys(KvElement element, const std::byte* slice, uint32_t head_dim, float* out) {
  if (element == KvElement::kF32) {
    std::memcpy(out, slice, sizeof(float) * kBlockTokens * head_dim);
    return;
  }
  if (element == KvElement::kInt8) {
    const auto* codes = reinterpret_cast<const int8_t*>(slice);
    for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
      const float scale = ScaleAt(slice, head_dim, slot);
      for (uint32_t d = 0; d < head_dim; ++d) {
        const size_t at = size_t{d} * kBlockTokens + slot;
        out[at] = static_cast<float>(codes[at]) * scale;
      }
    }
    return;
  }
  const auto* keys = reinterpret_cast<const uint16_t*>(slice);
  for (uint32_t d = 0; d < head_dim; ++d) {
    for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
      out[size_t{d} * kBlockTokens + slot] = Bf16ToFloat(keys[KeyPair(d, slot)]);
    }
  }
}

void ExpandValues(KvElement element, const std::byte* slice, uint32_t head_dim, float* out) {
  if (element == KvElement::kF32) {
    std::memcpy(out, slice, sizeof(float) * kBlockTokens * head_dim);
    return;
  }
  if (element == KvElement::kInt8) {
    const auto* codes = reinterpret_cast<const int8_t*>(slice);
    for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
      const float scale = ScaleAt(slice, head_dim, slot);
      for (uint32_t d = 0; d < head_dim; ++d, ++codes, ++out) {
        *out = static_cast<float>(*codes) * scale;
      }
    }
    return;
  }
  const auto* values = reinterpret_cast<const uint16_t*>(slice);
  for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      out[size_t{slot} * head_dim + d] = Bf16ToFloat(values[ValuePair(d, slot, head_dim)]);
    }
  }
}

void StoreKeys(KvElement element, const float* columns, uint32_t head_dim, std::byte* slice) {
  switch (element) {
    case KvElement::kF32:
      std::memcpy(slice, columns, KvSliceBytes(element, head_dim));
      break;
    case KvElement::kBf16:
      for (uint32_t d = 0; d < head_dim; ++d, columns += kBlockTokens) {
        auto* keys = reinterpret_cast<uint16_t*>(slice) + KeyPair(d, 0);
        for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
          keys[size_t{slot} * 2] = FloatToBf16(columns[slot]);
        }
      }
      break;
    case KvElement::kInt8:
      StoreInt8Columns(columns, head_dim, slice);
      break;
  }
}

void StoreValues(KvElement element, const float* rows, uint32_t head_dim, std::byte* slice) {
  switch (element) {
    case KvElement::kF32:
      std::memcpy(slice, rows, KvSliceBytes(element, head_dim));
      break;
    case KvElement::kBf16:
      for (uint32_t slot = 0; slot < kBlockTokens; ++slot, rows += head_dim) {
        auto* values = reinterpret_cast<uint16_t*>(slice) + ValuePair(0, slot, head_dim);
        for (uint32_t d = 0; d < head_dim; ++d) values[size_t{d} * 2] = FloatToBf16(rows[d]);
      }
      break;
    case KvElement::kInt8:
      for (uint32_t slot = 0; slot < kBlockTokens; ++slot, rows += head_dim) {
        StoreInt8Row(rows, head_dim, slot, slice);
      }
      break;
  }
}

}  // namespace baton::kernels
