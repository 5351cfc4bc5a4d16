// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace baton::sampling {
namespace {

constexpr size_t kLanes = 8;

// Adding and taking away 1.5 x 2^23 rounds a float to an integer; 1.5 x 2^17
// rounds a double to a multiple of 2^-35.
constexpr float kToInteger = 12582912.0f;
constexpr double kToGrid = 196608.0;

constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts; the product of the first with a small integer is exact.
constexpr float kLn2High = 0.693359375f;
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kLowest = -87.0f;  // e^-87 is far below the grid

// e^x for x <= 0: 2^n times the Taylor polynomial of the rest, which is at
// most ln(2)/2 and so needs seven terms.
inline float ExpNonPositive(float x) {
  x = x > kLowest ? x : kLowest;
  const float n = (x * kLog2E + kToInteger) - kToInteger;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n) + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

inline double ToGrid(float weight) { return (static_cast<double>(weight) + kToGrid) - kToGrid; }

double SumGroup(const float* logits, float max, float scale) {
  float weights[kWeightGroup];
  for (size_t i = 0; i < kWeightGroup; ++i) weights[i] = ExpNonPositive((logits[i] - max) * scale);
  double sums[kLanes] = {};
  for (size_t i = 0; i < kWeightGroup; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += ToGrid(weights[i + lane]);
  }
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace

double Weight(float logit, float max, float scale) {
  return ToGrid(ExpNonPositive((logit - max) * scale));
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
