// SPDX-License-Identifier: Apache-2.0
// float16 (IEEE 754 binary16) and bfloat16 by their bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

float HalfToFloat(uint16_t bits);            // exactly; NaN stays NaN
float LoadHalfFloat(const std::byte* from);  // two bytes, at any address
float Bf16ToFloat(uint16_t bits);

// To nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
uint16_t FloatToHalf(float value);
uint16_t FloatToBf16(float value);

}  // namespace baton
