// SPDX-License-Identifier: Apache-2.0
// Numbers into blocks of 32 values as block_quant.h decodes them. A value that
// is not finite makes its whole block NaN, so that it shows in the results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/block_quant.h"

namespace baton {

// Blocks of values that are scale * codes already: nothing is lost. `scale` is
// the bits of a float16; codes are -8 to 7 for Q4_0.
void StoreQ8_0(uint16_t scale, const int8_t* codes, std::byte* block);
void StoreQ4_0(uint16_t scale, const int8_t* codes, std::byte* block);

// The block nearest to 32 values: scale max |x| / 127.
void QuantizeQ8_0(const float* x, std::byte* block);

// The block of least squared error among 16 candidates: the largest |x| would
// become code -9 (which is cut to -8) to -6, in steps of 0.2, and the scale is
// then fitted to the codes by least squares.
void QuantizeQ4_0(const float* x, std::byte* block);

}  // namespace baton
