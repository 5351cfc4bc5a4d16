// SPDX-License-Identifier: Apache-2.0
// Elementary functions with the same bits on every machine; the C library's
// last bits depend on the CPU.
#pragma once

namespace baton::sampling {

// Natural logarithm, to 3e-16 of its value or of 1. REQUIRES: x is positive,
// finite and normal.
double ExactLog(double x);

// e^x, to 1e-15 of its value. REQUIRES: |x| <= 700.
double ExactExp(double x);

// base^exponent, to 1e-13 of its value; exact for an exponent of 0 or 1.
// REQUIRES: base is at least 1, |exponent| at most 10, and the result in range.
double ExactPower(double base, double exponent);

// The weight of a logit: exp((logit - max) * scale), rounded to a multiple of
// 2^-35. Sums of up to 2^18 weights are exact in double, so they do not depend
// on the order of addition.
// REQUIRES: logit <= max, scale > 0, all finite. Error below 2e-7 of the exact
// value times 1 plus the exponent's size, plus 2^-36.
float ExactWeight(float logit, float max, float scale);

}  // namespace baton::sampling
