// SPDX-License-Identifier: Apache-2.0
// The KV slice layouts that all backends share, so that a block reads the same
// everywhere. A backend adds its Attend.
#pragma once

#include "kernels/api/attention.h"

namespace baton::kernels {

// float32. K: [head_dim][32 tokens]; V: [32 tokens][head_dim].
class F32Slices : public AttentionFormat {
 public:
  std::string_view slice_layout() const final { return "k-columns-v-rows-f32/1"; }
  KvElement element() const final { return KvElement::kF32; }
  void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot, std::byte* k_slice,
              std::byte* v_slice) const final;
};

// bfloat16 in pairs. K: [head_dim / 2][32 tokens][2 dims];
// V: [16 token pairs][head_dim][2 tokens].
class Bf16Slices : public AttentionFormat {
 public:
  std::string_view slice_layout() const final { return "k-pairs-v-pairs-bf16/1"; }
  KvElement element() const final { return KvElement::kBf16; }
  void Append(const float* k, const float* v, uint32_t head_dim, uint32_t slot, std::byte* k_slice,
              std::byte* v_slice) const override;
};

// A slice as float32 in the layout of F32Slices; out [32 * head_dim].
void ExpandKeys(KvElement element, const std::byte* slice, uint32_t head_dim, float* out);
void ExpandValues(KvElement element, const std::byte* slice, uint32_t head_dim, float* out);

}  // namespace baton::kernels
