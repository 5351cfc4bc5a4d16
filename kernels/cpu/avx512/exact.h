// SPDX-License-Identifier: Apache-2.0
// float32 formats for AVX-512F: what --precision exact runs on.
#pragma once

#include "kernels/api/attention.h"
#include "kernels/api/linear.h"
#include "kernels/cpu/avx512/variant.h"

namespace baton::kernels::BATON_AVX512 {

// Weights of every type as float32; one fused multiply-add per input, in order.
// REQUIRES (both): AVX-512F.
const LinearFormat& ExactLinear();
const AttentionFormat& F32Attention();

}  // namespace baton::kernels::BATON_AVX512
