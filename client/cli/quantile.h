// SPDX-License-Identifier: Apache-2.0
// Quantiles of a sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace baton::cli {

// The q-quantile (0 <= q <= 1) with linear interpolation between neighbours,
// as numpy.quantile; 0 of nothing.
inline double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(rank));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (rank - std::floor(rank)) * (values[above] - values[below]);
}

}  // namespace baton::cli
