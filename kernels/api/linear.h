// SPDX-License-Identifier: Apache-2.0
// Matrix products: packed weights times tiles of prepared activations.
//
// A matrix [outputs, inputs] is packed into panels of 32 outputs; a batch of
// rows is prepared into tiles of at most 6 rows. Multiply() of one panel and
// one tile is the unit of work that callers split over threads and follow with
// their own epilogue while the result is still in the L1 cache.
//
// The rule of every implementation: one fixed sequence of operations per
// output element, whatever rows share its tile, so that a row has the same
// bits in every batch, chunk and thread count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace baton::kernels {

inline constexpr uint32_t kPanelOutputs = 32;
inline constexpr uint32_t kTileRows = 6;
// Inputs are handled in groups of 32; rows are padded with zeros to whole
// groups (see PaddedInputs).
inline constexpr uint32_t kGroup = 32;

constexpr uint32_t PanelCount(uint32_t outputs) {
  return (outputs + kPanelOutputs - 1) / kPanelOutputs;
}

// Weight types as checkpoints store them (block types as in GGUF: K types in
// blocks of 256 values, the others of 32; common/base/block_quant.h).
enum class WeightType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K
};

// 32 or fewer rows of a weight matrix as stored: row i starts at
// data + i * row_bytes and holds `inputs` values.
struct WeightRows {
  WeightType type = WeightType::kF32;
  const std::byte* data = nullptr;
  size_t row_bytes = 0;
  uint32_t rows = 0;    // <= kPanelOutputs; missing ones are packed as zeros
  uint32_t inputs = 0;  // blocks are whole: what the last has beyond the inputs is zeros
};

// How rows of activations are laid out for Multiply. Stateless and
// thread-safe; distinct groups of a tile may be packed by distinct threads.
class ActivationFormat {
 public:
  virtual ~ActivationFormat() = default;
  virtual std::string_view name() const = 0;
  // Inputs rounded up to what a row of this format covers (a multiple of 32).
  virtual uint32_t PaddedInputs(uint32_t inputs) const = 0;
  // Bytes of a tile of kTileRows rows; a multiple of 64.
  virtual size_t TileBytes(uint32_t inputs) const = 0;
  // Puts values [32 group, 32 group + 32) of row `row` of a tile that holds
  // `tile_rows` rows into place. `x` has 32 values (zeros beyond the inputs).
  // Every group of PaddedInputs must be packed before Multiply.
  virtual void PackGroup(const float* x, std::byte* tile, uint32_t inputs, uint32_t tile_rows,
                         uint32_t row, uint32_t group) const = 0;
  // The same for `count` groups of all rows of the tile; row r's values start
  // at x + r * stride. The results multiply to the same bits.
  virtual void PackGroups(const float* x, size_t stride, std::byte* tile, uint32_t inputs,
                          uint32_t tile_rows, uint32_t group, uint32_t count) const {
    for (uint32_t g = 0; g < count; ++g) {
      for (uint32_t r = 0; r < tile_rows; ++r) {
        PackGroup(x + r * stride + size_t{g} * kGroup, tile, inputs, tile_rows, r, group + g);
      }
    }
  }
};

// A packed weight format with its kernel. Stateless and thread-safe.
class LinearFormat {
 public:
  virtual ~LinearFormat() = default;
  // Such as "avx512/w4a8-g32/1": part of numerics_id; changes with any change
  // of bits.
  virtual std::string_view name() const = 0;
  virtual const ActivationFormat& activation() const = 0;
  // Bytes of one packed panel; a multiple of 64.
  virtual size_t PanelBytes(uint32_t inputs) const = 0;
  // REQUIRES: `out` is 64-byte aligned.
  virtual void PackPanel(const WeightRows& rows, std::byte* out) const = 0;
  // out[r, c] = sum over k of activation[r, k] * weight[c, k];
  // out [tile_rows, 32], 64-byte aligned. `next` is memory that will be needed
  // next (may be null): the kernel may prefetch its first `next_bytes`.
  virtual void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile,
                        uint32_t tile_rows, float* out, const std::byte* next,
                        size_t next_bytes) const = 0;
};

// Rows [0, rows) cut into tiles of at most kTileRows rows, balanced so that
// no tile is much smaller than another.
class RowTiles {
 public:
  explicit RowTiles(uint32_t rows) : rows_(rows), count_((rows + kTileRows - 1) / kTileRows) {}
  uint32_t rows() const { return rows_; }
  uint32_t count() const { return count_; }
  uint32_t begin(uint32_t tile) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(tile) * rows_ / count_);
  }
  uint32_t size(uint32_t tile) const { return begin(tile + 1) - begin(tile); }

 private:
  uint32_t rows_;
  uint32_t count_;
};

}  // namespace baton::kernels
