// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/hadamard.h"

#include <cmath>
#include <cstddef>

#include "kernels/api/attention.h"

namespace baton::kernels {
namespace {

// (a, b) becomes (a + b, a - b) for `count` pairs.
void Butterflies(float* a, float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i], difference = a[i] - b[i];
    a[i] = sum;
    b[i] = difference;
  }
}

// Elements are runs of `width` floats; runs of one part are contiguous.
void Transform(float* data, uint32_t size, size_t width) {
  const uint32_t part = HadamardPart(size);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(part)));
  for (uint32_t first = 0; first < size; first += part) {
    float* elements = data + first * width;
    for (uint32_t half = part / 2; half > 0; half /= 2) {
      for (uint32_t i = 0; i < part; i += 2 * half) {
        Butterflies(elements + i * width, elements + (i + half) * width, half * width);
      }
    }
    for (size_t i = 0; i < part * width; ++i) elements[i] *= scale;
  }
}

}  // namespace

void HadamardRow(float* row, uint32_t size) { Transform(row, size, 1); }

void HadamardColumns(float* columns, uint32_t size) { Transform(columns, size, kBlockTokens); }

}  // namespace baton::kernels
