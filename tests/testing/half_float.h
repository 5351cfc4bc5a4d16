// SPDX-License-Identifier: Apache-2.0
// IEEE binary16 as the processor converts it: what our conversions in plain
// C++ are compared with. Needs F16C, which every x86-64 processor with AVX2 has.
#ifndef BATON_TESTS_TESTING_HALF_FLOAT_H_
#define BATON_TESTS_TESTING_HALF_FLOAT_H_

#include <immintrin.h>

#include <cstdint>

namespace baton::testing {

[[gnu::target("f16c")]] inline float ProcessorHalfToFloat(uint16_t half) { return _cvtsh_ss(half); }

// Rounds to nearest, ties to even.
[[gnu::target("f16c")]] inline uint16_t ProcessorFloatToHalf(float value) {
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}

}  // namespace baton::testing

#endif  // BATON_TESTS_TESTING_HALF_FLOAT_H_
