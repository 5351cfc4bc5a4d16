// SPDX-License-Identifier: Apache-2.0
// The KV slice layouts that all backends share, so that a block reads the same
// everywhere. A backend adds its Attend.
#pragma once

#include "kernels/api/attention.h"

namespace baton::kernels {

// Names of the layouts, as in kv::KvLayout::slice_layout.
inline constexpr std::string_view kF32SliceLayout = "k-columns-v-rows-f32/1";
inline constexpr std::string_view kBf16SliceLayout = "k-pairs-v-pairs-bf16/1";
inline constexpr std::string_view kInt8SliceLayout = "k-columns-v-rows-int8-hadamard/1";

// float32. K: [head_dim][32 tokens]; V: [32 tokens][head_dim].
class F32Slices : public AttentionFormat {
 public:
  std::string_view slice_layout() const final { return kF32SliceLayout; }
  KvElement element() const final { return KvElement::kF32; }
  void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot, std::byte* k_slice,
              std::byte* v_slice) const final;
};

// bfloat16 in pairs. K: [head_dim / 2][32 tokens][2 dims];
// V: [16 token pairs][head_dim][2 tokens].
class Bf16Slices : public AttentionFormat {
 public:
  std::string_view slice_layout() const final { return kBf16SliceLayout; }
  KvElement element() const final { return KvElement::kBf16; }
  void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot, std::byte* k_slice,
              std::byte* v_slice) const override;
};

// 8-bit codes, then the tokens' scales as bf16. K, rotated: [head_dim][32
// tokens]; V: [32 tokens][head_dim]; scales [32].
class Int8Slices : public AttentionFormat {
 public:
  std::string_view slice_layout() const final { return kInt8SliceLayout; }
  KvElement element() const final { return KvElement::kInt8; }
  void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot, std::byte* k_slice,
              std::byte* v_slice) const final;
  void PrepareQuery(float* query, uint32_t head_dim) const final;
};

// Of an int8 slice: where its scales stand.
inline const std::byte* Int8Scales(const std::byte* slice, uint32_t head_dim) {
  return slice + size_t{kBlockTokens} * head_dim;
}

// A slice as float32 in the layout of F32Slices; out [32 * head_dim]. Keys of
// int8 slices stay rotated.
void ExpandKeys(KvElement element, const std::byte* slice, uint32_t head_dim, float* out);
void ExpandValues(KvElement element, const std::byte* slice, uint32_t head_dim, float* out);

// The way back: a slice of the given type from float32 in the layout of
// F32Slices; keys of int8 slices are given rotated.
void StoreKeys(KvElement element, const float* columns, uint32_t head_dim, std::byte* slice);
void StoreValues(KvElement element, const float* rows, uint32_t head_dim, std::byte* slice);

}  // namespace baton::kernels
