// SPDX-License-Identifier: Apache-2.0
// Layouts of GPU matrices: in the order in which the lanes of a warp take the
// operands of mma.m16n8k16, so that every load is 16 bytes of one lane and the
// lanes of a warp read one run of bytes.
//
// A lane is g * 4 + t. In a group of 32 inputs it holds, of each of its rows,
// inputs {2t, 2t+1, 2t+8, 2t+9} of both halves (16 inputs) of the group.
//
// Activations: rows in tiles of 8, bf16; [tile][group][lane][8 values].
// Weights: outputs in tiles of 16; [tile][group] records:
//   bf16         [half][lane][8]: rows g and g + 8 in the order of a[4] of
//                device.h's Mma; 1,024 bytes
//   int8         [lane][16 codes], then 16 f16 scales; 544 bytes
//   int4         [lane][16 nibbles], then 16 f16 scales; 288 bytes; a weight is
//                scale * (nibble - 8)
//   int4 affine  the same and 16 f16 minima; 320 bytes; scale * nibble + minimum
// Scales and minima stand in pairs (g, g + 8).
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define BATON_ANYWHERE __host__ __device__
#else
#define BATON_ANYWHERE
#endif

namespace baton::gpu {

inline constexpr uint32_t kGroupInputs = 32;
inline constexpr uint32_t kTileOutputs = 16;
inline constexpr uint32_t kTileRows = 8;

enum class WeightFormat : uint8_t { kBf16, kInt8, kInt4, kInt4Affine };

BATON_ANYWHERE constexpr uint32_t RecordBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
      return 1024;
    case WeightFormat::kInt8:
      return 544;
    case WeightFormat::kInt4:
      return 288;
    case WeightFormat::kInt4Affine:
      return 320;
  }
  return 0;
}

BATON_ANYWHERE constexpr uint32_t GroupsOf(uint32_t inputs) {
  return (inputs + kGroupInputs - 1) / kGroupInputs;
}
BATON_ANYWHERE constexpr uint32_t TilesOf(uint32_t outputs) {
  return (outputs + kTileOutputs - 1) / kTileOutputs;
}
BATON_ANYWHERE constexpr uint32_t RowTilesOf(uint32_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

// Lane that holds an input of a row, and where in its 8 values.
struct Place {
  uint32_t lane, slot;
};
BATON_ANYWHERE constexpr Place PlaceOf(uint32_t row, uint32_t input) {
  const uint32_t in_half = input % 16;
  return {row % 8 * 4 + in_half % 8 / 2, input / 16 * 4 + in_half / 8 * 2 + input % 2};
}

// Index of a value of an activation row.
BATON_ANYWHERE constexpr size_t ActivationIndex(uint32_t row, uint32_t input, uint32_t groups) {
  const Place place = PlaceOf(row, input % kGroupInputs);
  const size_t record = size_t{row / kTileRows} * groups + input / kGroupInputs;
  return (record * 32 + place.lane) * 8 + place.slot;
}
// Plain rows, [row][inputs] bf16, for the vendor's matrix library: of a group the
// inputs stand in the lanes' order, activations and weights alike, which a product
// does not see.
BATON_ANYWHERE constexpr size_t PlainIndex(uint32_t row, uint32_t input, uint32_t inputs) {
  const Place place = PlaceOf(row, input % kGroupInputs);
  return size_t{row} * inputs + input / kGroupInputs * kGroupInputs + place.lane % 4 * 8 +
         place.slot;
}
constexpr size_t ActivationBytes(uint32_t rows, uint32_t inputs) {
  return size_t{RowTilesOf(rows)} * GroupsOf(inputs) * 512;
}
constexpr size_t WeightBytes(WeightFormat format, uint32_t outputs, uint32_t inputs) {
  return size_t{TilesOf(outputs)} * GroupsOf(inputs) * RecordBytes(format);
}

}  // namespace baton::gpu
