// SPDX-License-Identifier: Apache-2.0
// The tile of kernels/packing/s8_tiles.h with the shifts of this backend.
#pragma once

#include "kernels/packing/s8_tiles.h"

namespace baton::kernels::avx2 {

struct S8Tile : S8TileLayout<2> {
  // Two s16, where a u4 weight w stands for w - 8: -8 times the sum of the q
  // at places 0 and 1 of all quads, and of those at places 2 and 3.
  static constexpr uint32_t kShift4 = kFirstShift;
  // The same of the first 16 inputs alone.
  static constexpr uint32_t kFirstHalf4 = kFirstShift + 1;
};

}  // namespace baton::kernels::avx2
