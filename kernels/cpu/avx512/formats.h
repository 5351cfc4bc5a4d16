// SPDX-License-Identifier: Apache-2.0
// The formats of the avx512 backend. All are stateless constants; their
// methods must run only where Avx512Backend().available().
#pragma once

#include "kernels/api/attention.h"
#include "kernels/api/linear.h"
#include "kernels/cpu/avx512/variant.h"

namespace baton::kernels::BATON_AVX512 {

// s8 per (row, 32 inputs) with a float scale; see s8_activations.h.
const ActivationFormat& S8Activations();
// bf16, packed [inputs / 2][rows][2].
const ActivationFormat& Bf16Activations();

// Q4_1: scale and minimum per 32; the part of the minimum that the scale does
// not cover, m + 8 d, is rounded to bf16.
const LinearFormat& W4AffineLinear();
// Q4_0: scale per 32, zero at 8; exact in the weights.
const LinearFormat& W4SymmetricLinear();
// Q8_0, Q5_0: scale per 32; exact in the weights.
const LinearFormat& W8Linear();
// Q5_1: scale and minimum per 32; exact in the weights.
const LinearFormat& W8AffineLinear();
// Their own types, with two-level scales; exact in the weights.
const LinearFormat& Q4KLinear();
const LinearFormat& Q5KLinear();
const LinearFormat& Q6KLinear();
// F32, F16, BF16, rounded to bf16.
const LinearFormat& Bf16Linear();

// KV as bf16: K slice [head_dim / 2][32 tokens][2], V slice
// [16 token pairs][head_dim][2].
const AttentionFormat& Bf16Attention();
// KV as 8-bit codes with a scale per token; float32 throughout, in the order that
// --precision exact asks for, too.
const AttentionFormat& Int8Attention();

}  // namespace baton::kernels::BATON_AVX512
