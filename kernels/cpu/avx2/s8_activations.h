// SPDX-License-Identifier: Apache-2.0
// The tile of kernels/packing/s8_tiles.h with the shift of this backend.
#pragma once

#include "kernels/packing/s8_tiles.h"

namespace baton::kernels::avx2 {

struct S8Tile : S8TileLayout<1> {
  // Two s16, where a u4 weight w stands for w - 8: -8 times the sum of the q
  // at places 0 and 1 of all quads, and of those at places 2 and 3.
  static constexpr uint32_t kShift4 = kFirstShift;
};

}  // namespace baton::kernels::avx2
