// SPDX-License-Identifier: Apache-2.0
// Operations on single rows of float32; a row's bits never depend on others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton::kernels {

// out[c] = x[c] / sqrt(mean(x^2) + epsilon) * weight[c]; may be in place
// (Zhang and Sennrich, 2019, "Root Mean Square Layer Normalization").
using RmsNormRowFn = void(std::span<const float> x, std::span<const float> weight, float epsilon,
                          std::span<float> out);

// out[c] = gate[c] / (1 + exp(-gate[c])) * up[c] (Shazeer, 2020, "GLU Variants
// Improve Transformer"); may be in place. Finite for every finite input.
using SwiGluRowFn = void(std::span<const float> gate, std::span<const float> up,
                         std::span<float> out);

// x[c] += y[c].
using AddRowFn = void(std::span<float> x, std::span<const float> y);

// x[r * stride + c] += y[r * 32 + c] for r < rows, c < columns <= 32: adds a
// tile of results (linear.h) to rows.
using AddTileFn = void(float* x, size_t stride, const float* y, uint32_t rows, uint32_t columns);

// Rotates x[0, 2n) by n angles given as cos and sin (Su et al., 2021,
// "RoFormer"). Adjacent pairs: (x[2i], x[2i+1]); halves: (x[i], x[i+n]).
using RopeRowFn = void(std::span<float> x, std::span<const float> cos, std::span<const float> sin);

}  // namespace baton::kernels
