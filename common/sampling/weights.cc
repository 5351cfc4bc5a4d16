// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/weights.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace baton::sampling {
namespace {

// Vectors of the compiler, as wide as every x86-64 and ARM register; loops over
// arrays were not vectorized here.
constexpr size_t kLanes = 4;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));

// Adding and taking away 1.5 x 2^23 rounds a float to an integer; 1.5 x 2^17
// rounds a double to a multiple of 2^-35.
constexpr float kToInteger = 12582912.0f;
constexpr double kToGrid = 196608.0;

constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts; the product of the first with a small integer is exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kLowest = -87.0f;  // e^-87 is far below the grid

// Weights of kLanes logits: e^x for x <= 0 as 2^n times the Taylor polynomial
// of the rest, which is at most ln(2)/2 and so needs seven terms.
inline void WeighLanes(const float* logits, float max, float scale, Doubles& weights) {
  Floats x;
  std::memcpy(&x, logits, sizeof(x));
  x = (x - max) * scale;
  x = x > kLowest ? x : kLowest + Floats{};
  const Floats n = (x * kLog2E + kToInteger) - kToInteger;
  const Floats r = (x - n * kLn2High) - n * kLn2Low;
  Floats p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  Floats power;
  std::memcpy(&power, &exponent, sizeof(power));
  weights = (__builtin_convertvector(p * power, Doubles) + kToGrid) - kToGrid;
}

double SumGroup(const float* logits, float max, float scale) {
  Doubles sums = {};
  for (size_t i = 0; i < kWeightGroup; i += kLanes) {
    Doubles weights;
    WeighLanes(logits + i, max, scale, weights);
    sums += weights;
  }
  double total = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total;
}

}  // namespace

double Weight(float logit, float max, float scale) {
  float lanes[kLanes] = {logit, logit, logit, logit};
  Doubles weights;
  WeighLanes(lanes, max, scale, weights);
  return weights[0];
}

double SumWeights(std::span<const float> logits, float max, float scale,
                  std::vector<double>& group_sums) {
  group_sums.clear();
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kWeightGroup) {
    const size_t size = std::min(kWeightGroup, logits.size() - begin);
    double sum = 0;
    if (size == kWeightGroup) {
      sum = SumGroup(logits.data() + begin, max, scale);
    } else {
      for (float logit : logits.subspan(begin, size)) sum += Weight(logit, max, scale);
    }
    group_sums.push_back(sum);
    total += sum;
  }
  return total;
}

}  // namespace baton::sampling
