// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512, without fused multiply-adds: they would give other bits.
#define BATON_ROW_PASSES avx512
#include "common/sampling/row_passes_code.h"
