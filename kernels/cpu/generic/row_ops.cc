// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/generic/row_ops.h"

#include <cmath>
#include <cstddef>

#include "kernels/api/linear.h"
#include "kernels/cpu/generic/vec.h"

namespace baton::kernels::generic {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr size_t kSumLanes = 16;

float SquareSum(std::span<const float> x) {
  float lanes[kSumLanes] = {};
  size_t c = 0;
  for (; c + kSumLanes <= x.size(); c += kSumLanes) {
    for (size_t i = 0; i < kSumLanes; ++i) lanes[i] += x[c + i] * x[c + i];
  }
  for (size_t i = 0; c + i < x.size(); ++i) lanes[i] += x[c + i] * x[c + i];
  for (size_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

Vec SwiGluLanes(Vec gate, Vec up) { return gate / (Splat(1) + Exp2(gate * Splat(-kLog2E))) * up; }

void Rotate(float& x, float& y, float cos, float sin) {
  const float x0 = x, y0 = y;
  x = x0 * cos - y0 * sin;
  y = y0 * cos + x0 * sin;
}

}  // namespace

void RmsNorm(std::span<const float> x, std::span<const float> weight, float epsilon,
             std::span<float> out) {
  const float scale = 1 / std::sqrt(SquareSum(x) / static_cast<float>(x.size()) + epsilon);
  for (size_t c = 0; c < x.size(); ++c) out[c] = x[c] * scale * weight[c];
}

void SwiGlu(std::span<const float> gate, std::span<const float> up, std::span<float> out) {
  size_t c = 0;
  for (; c + kLanes <= gate.size(); c += kLanes) {
    Store(&out[c], SwiGluLanes(Load(&gate[c]), Load(&up[c])));
  }
  for (; c < gate.size(); ++c) out[c] = SwiGluLanes(Splat(gate[c]), Splat(up[c]))[0];
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

}  // namespace baton::kernels::generic
