// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, without fused multiply-adds: they would give other bits.
#define BATON_ROW_PASSES avx2
#include "common/sampling/row_passes_code.h"
