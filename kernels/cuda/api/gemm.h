// SPDX-License-Identifier: Apache-2.0
// A product by the vendor's matrix library.
#pragma once

#include <cstdint>

namespace baton::gpu {

// out[row, c] = sum of rows[row, i] weights[c, i], plus bias[c] where there is
// one; or added to what stands there. The order of the sum is the library's: it
// depends on the sizes.
struct GemmTask {
  const void* weights;  // bf16 [outputs, inputs]
  const void* rows;     // bf16 [row_count, inputs]
  const float* bias;    // [outputs] or null; null where it is added
  float* out;           // [row_count, out_stride]
  uint32_t out_stride;  // floats from row to row
  uint32_t row_count, outputs, inputs;
  bool add;
};

}  // namespace baton::gpu
