// SPDX-License-Identifier: Apache-2.0
// Tiles of activations quantized to s8 per (row, 32 inputs).
//
// A tile of R rows holds one record per group of 32 inputs, each an array of
// 4-byte words [kWords][R]:
//   words 0..7   quads of s8: q[4 w .. 4 w + 3], x = q * scale, |q| <= 127
//   kScale       float: max |x| / 127
//   kShift4      int32: -8 * sum q, where a u4 weight w stands for w - 8
//   kShift8      int32: -128 * sum q, where a u8 weight w stands for w - 128
//   kSum         float: the sum of the unquantized x, for minima of weights
// A shift is the initial value of the integer accumulator, which makes the
// zero point of the weights free.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::kernels::avx512 {

struct S8Tile {
  static constexpr uint32_t kQuads = 8;
  static constexpr uint32_t kScale = 8;
  static constexpr uint32_t kShift4 = 9;
  static constexpr uint32_t kShift8 = 10;
  static constexpr uint32_t kSum = 11;
  static constexpr uint32_t kWords = 12;
};

}  // namespace baton::kernels::avx512
