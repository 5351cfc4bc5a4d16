// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/row_ops.h"

#include <cmath>
#include <cstddef>

#include "kernels/api/linear.h"

namespace baton::kernels::ref {
namespace {

void Rotate(float& x, float& y, double cos, double sin) {
  const double x0 = x, y0 = y;
  x = static_cast<float>(x0 * cos - y0 * sin);
  y = static_cast<float>(y0 * cos + x0 * sin);
}

}  // namespace

void RmsNorm(std::span<const float> x, std::span<const float> weight, float epsilon,
             std::span<float> out) {
  double square_sum = 0;
  for (float value : x) square_sum += static_cast<double>(value) * value;
  const double scale = 1 / std::sqrt(square_sum / static_cast<double>(x.size()) + epsilon);
  for (size_t c = 0; c < x.size(); ++c) out[c] = static_cast<float>(x[c] * scale * weight[c]);
}

void SwiGlu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  for (size_t c = 0; c < gate.size(); ++c) {
    const double g = gate[c];
    out[c] = static_cast<float>(g / (1 + std::exp(-g)) * up[c]);
  }
}

void Add(std::span<float> x, std::span<const float> y) {
  for (size_t c = 0; c < x.size(); ++c) x[c] += y[c];
}

void AddTile(float* x, size_t stride, const float* y, uint32_t rows, uint32_t columns) {
  for (uint32_t r = 0; r < rows; ++r, x += stride, y += kPanelOutputs) {
    for (uint32_t c = 0; c < columns; ++c) x[c] += y[c];
  }
}

void RopeAdjacent(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  for (size_t i = 0; i < cos.size(); ++i) Rotate(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
}

void RopeHalves(std::span<float> x, std::span<const float> cos, std::span<const float> sin) {
  const size_t half = cos.size();
  for (size_t i = 0; i < half; ++i) Rotate(x[i], x[i + half], cos[i], sin[i]);
}

}  // namespace baton::kernels::ref
