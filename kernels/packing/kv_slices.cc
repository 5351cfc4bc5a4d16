// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/kv_slices.h"

#include <cstring>

#include "kernels/packing/dequantize.h"

namespace baton::kernels {
namespace {

// Index of (dim, slot) in the bf16 slices.
size_t KeyPair(uint32_t dim, uint32_t slot) {
  return (size_t{dim / 2} * kBlockTokens + slot) * 2 + dim % 2;
}
size_t ValuePair(uint32_t dim, uint32_t slot, uint32_t head_dim) {
  return (size_t{slot / 2} * head_dim + dim) * 2 + slot % 2;
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

void ExpandKeys(KvElement element, const std::byte* slice, uint32_t head_dim, float* out) {
  if (element == KvElement::kF32) {
    std::memcpy(out, slice, sizeof(float) * kBlockTokens * head_dim);
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
  const auto* values = reinterpret_cast<const uint16_t*>(slice);
  for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      out[size_t{slot} * head_dim + d] = Bf16ToFloat(values[ValuePair(d, slot, head_dim)]);
    }
  }
}

}  // namespace baton::kernels
