// SPDX-License-Identifier: Apache-2.0
// The normalized Walsh-Hadamard transform, by butterflies (Fino and Algazi,
// 1976, "Unified matrix treatment of the fast Walsh-Hadamard transform").
//
// It keeps dot products, is its own inverse, and spreads the few large
// coordinates that keys have over all of them, so that one scale per key
// serves 8-bit codes well (as in QuaRot: Ashkboos et al., 2024).
#pragma once

#include <cstdint>

namespace baton::kernels {

// Vectors whose size is no power of two are turned in equal parts: of the
// largest power of two that divides the size.
constexpr uint32_t HadamardPart(uint32_t size) { return size & (~size + 1); }

// In place, [size] floats. Sums and differences in a fixed order and one
// multiplication: the same bits in every build.
void HadamardRow(float* row, uint32_t size);

// The same of kBlockTokens vectors at once, which stand in the columns of
// [size][kBlockTokens]; bit for bit what HadamardRow gives for each.
void HadamardColumns(float* columns, uint32_t size);

}  // namespace baton::kernels
