// SPDX-License-Identifier: Apache-2.0
// Tiles of activations quantized to s8 per (row, 32 inputs), with outliers
// apart.
//
// A tile of R rows holds one record per group of 32 inputs, each an array of
// 4-byte words [kWords][R]:
//   words 0..7   quads of s8: q[4 w .. 4 w + 3], x = q * scale, |q| <= 127
//   kScale       float: max |x| / 127
//   kSum         float: scale * sum q, for minima of weights
//   kFirstShift  and further: initial values of the integer accumulators, which
//                make the zero point of the weights free; of the backend
// (The sum of the unquantized x in the place of kSum would add error: what the
// minimum and the integer part of a weight have in opposite directions would
// no longer cancel in the rounding of x.)
//
// Behind the records stands an array of words [groups][R]: 0, or the one value
// of the row's group that is more than kOutlierRatio times as large as every
// other. It is left out of the record (q = 0, max |x| over the others); the
// word is its float bits with the low 5 replaced by its place in the group.
// A language model has channels, and its attention sink, whose activations
// would otherwise cost their whole group its precision: SmolLM2's mean KL
// against float32 falls from 0.0053 to 0.0012, with an outlier in 19 % of the
// groups (a ratio of 3: 0.0015 and 9 %, of 4: 0.0017 and 5 %).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/api/linear.h"
#include "kernels/packing/kernel_support.h"

namespace baton::kernels {

template <uint32_t kShifts>
struct S8TileLayout {
  static constexpr uint32_t kQuads = 8;
  static constexpr uint32_t kScale = 8;
  static constexpr uint32_t kSum = 9;
  static constexpr uint32_t kFirstShift = 10;
  static constexpr uint32_t kWords = kFirstShift + kShifts;

  // Word offset of the outliers.
  static constexpr size_t Outliers(uint32_t groups, uint32_t tile_rows) {
    return size_t{groups} * kWords * tile_rows;
  }
};

inline constexpr float kOutlierRatio = 2;
inline constexpr uint32_t kOutlierIndexMask = 31;
// Groups below this are taken as zeros: 127 / max would overflow.
inline constexpr float kSmallestMax = 1e-36f;

constexpr uint32_t GroupCount(uint32_t inputs) { return (inputs + kGroup - 1) / kGroup; }

// The outlier word of a group. `max` is max |x|; bit i of `large` says that
// |x[i]| > max / kOutlierRatio. No bit is set where max is infinite.
BATON_INLINE uint32_t OutlierWord(const float* x, uint32_t large, float max) {
  if (!std::has_single_bit(large) || max < kSmallestMax) return 0;
  const auto index = static_cast<uint32_t>(std::countr_zero(large));
  return (std::bit_cast<uint32_t>(x[index]) & ~kOutlierIndexMask) | index;
}

// How a group without its outlier is rounded: q = round(x * inverse).
struct S8Rounding {
  float scale, inverse;
};
BATON_INLINE S8Rounding RoundingOf(float max) {
  if (max < kSmallestMax) return {0, 0};
  return {max * (1.0f / 127), 127.0f / max};
}

// Writes all of a record but its shifts; returns the first of those, the next
// one tile_rows further.
template <typename Tile>
BATON_INLINE uint32_t* StoreS8Record(const uint32_t* quads, int32_t q_sum, float scale,
                                     bool has_nan, uint32_t outlier, std::byte* tile,
                                     uint32_t inputs, uint32_t tile_rows, uint32_t row,
                                     uint32_t group) {
  auto* words = reinterpret_cast<uint32_t*>(tile);
  words[Tile::Outliers(GroupCount(inputs), tile_rows) + size_t{group} * tile_rows + row] = outlier;
  words += size_t{group} * Tile::kWords * tile_rows + row;
  for (uint32_t w = 0; w < Tile::kQuads; ++w) words[w * tile_rows] = quads[w];
  // A NaN would vanish in the integers; the scale carries it to the results.
  if (has_nan) scale = std::numeric_limits<float>::quiet_NaN();
  words[Tile::kScale * tile_rows] = std::bit_cast<uint32_t>(scale);
  words[Tile::kSum * tile_rows] = std::bit_cast<uint32_t>(scale * static_cast<float>(q_sum));
  return words + Tile::kFirstShift * tile_rows;
}

// Calls add(group, place in the group, value, row) for every outlier of a
// tile, in the order of inputs. `words` are the tile's outliers [groups][R];
// list_nonzero(words, begin, end, list) puts the indices of the nonzero words
// among [begin, end) into `list`, which has room for 16 more than there can be,
// and returns how many.
template <uint32_t R, typename ListNonzero, typename Add>
BATON_INLINE void ForEachOutlier(const uint32_t* words, uint32_t groups,
                                 const ListNonzero& list_nonzero, const Add& add) {
  constexpr uint32_t kChunk = 256;
  uint32_t list[kChunk + 16];
  for (uint32_t begin = 0; begin < groups * R; begin += kChunk) {
    const uint32_t end = begin + kChunk < groups * R ? begin + kChunk : groups * R;
    const uint32_t count = list_nonzero(words, begin, end, list);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t word = words[list[i]];
      add(list[i] / R, word & kOutlierIndexMask, std::bit_cast<float>(word & ~kOutlierIndexMask),
          list[i] % R);
    }
  }
}

// The sizes of an activation format with tiles of layout Tile.
template <typename Tile>
class S8TileFormat : public ActivationFormat {
 public:
  uint32_t PaddedInputs(uint32_t inputs) const final { return GroupCount(inputs) * kGroup; }
  size_t TileBytes(uint32_t inputs) const final {
    const size_t bytes = size_t{GroupCount(inputs)} * (Tile::kWords + 1) * kTileRows * 4;
    return (bytes + 63) / 64 * 64;
  }
};

}  // namespace baton::kernels
