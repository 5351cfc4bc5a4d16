// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/exact_math.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "common/sampling/row_passes.h"

namespace baton::sampling {
namespace {

// ln 2 in two parts; the product of the first with an exponent is exact.
constexpr double kLn2High = 0x1.62e42fefap-1;
constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
constexpr double kRootHalf = 0.70710678118654752;
constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;

}  // namespace

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh((m - 1) / (m + 1)).
double ExactLog(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & kMantissa) | uint64_t{1022} << 52);  // [1/2, 1)
  if (m < kRootHalf) {
    m *= 2;
    --exponent;
  }
  const double f = (m - 1) / (m + 1);
  const double square = f * f;
  double series = 0;
  for (int term = 21; term >= 3; term -= 2) series = (series + 1.0 / term) * square;
  return exponent * kLn2High + (2 * f + (2 * f * series + exponent * kLn2Low));
}

// x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series.
double ExactExp(double x) {
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int term = 14; term >= 1; --term) sum = 1 + sum * r / term;
  return std::ldexp(sum, static_cast<int>(k));
}

double ExactPower(double base, double exponent) {
  if (exponent == 0) return 1;
  return exponent == 1 ? base : ExactExp(exponent * ExactLog(base));
}

float ExactWeight(float logit, float max, float scale) {
  float weights[kGroup];
  BestRowPasses().weigh({&logit, 1, nullptr}, {}, {max, scale}, {}, false, weights, {});
  return weights[0];
}

}  // namespace baton::sampling
