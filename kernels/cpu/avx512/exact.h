// SPDX-License-Identifier: Apache-2.0
// float32 formats for AVX-512F: what --precision exact runs on.
#pragma once

#include "kernels/api/attention.h"
#include "kernels/api/linear.h"

namespace baton::kernels::avx512 {

// Weights of every type as float32; one fused multiply-add per input, in order.
// REQUIRES (both): AVX-512F.
const LinearFormat& ExactLinear();
const AttentionFormat& F32Attention();

}  // namespace baton::kernels::avx512
