// SPDX-License-Identifier: Apache-2.0
// The formats of the avx2 backend. All are stateless constants; their methods
// must run only where Avx2Backend().available().
#pragma once

#include "kernels/api/attention.h"
#include "kernels/api/linear.h"

namespace baton::kernels::avx2 {

// s8 per (row, 32 inputs) with a float scale; see s8_activations.h.
const ActivationFormat& S8Activations();

// Q4_1: scale and minimum per 32; exact in the weights.
const LinearFormat& W4AffineLinear();
// Q4_0: scale per 32, zero at 8; exact in the weights.
const LinearFormat& W4SymmetricLinear();
// Q8_0: scale per 32; exact in the weights.
const LinearFormat& W8Linear();
// Q5_0 and Q5_1: scale, or scale and minimum, per 32; exact in the weights.
const LinearFormat& W5SymmetricLinear();
const LinearFormat& W5AffineLinear();
// K types: two-level scales per 32 (Q6_K: 16); exact in the weights.
const LinearFormat& Q4KLinear();
const LinearFormat& Q5KLinear();
const LinearFormat& Q6KLinear();
// Plain numbers rounded to bf16; float32 activations and sums.
const LinearFormat& Bf16Linear();
// Weights of every type as float32: what --precision exact runs on. One fused
// multiply-add per input, in order (as Bf16Linear).
const LinearFormat& ExactLinear();

// float32 arithmetic over float32, bf16 or int8 slices.
const AttentionFormat& F32Attention();
const AttentionFormat& Bf16Attention();
const AttentionFormat& Int8Attention();

}  // namespace baton::kernels::avx2
