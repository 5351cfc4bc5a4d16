// SPDX-License-Identifier: Apache-2.0
// Rows of activations in the formats that the next matrices read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "common/model/aligned_buffer.h"
#include "common/model/packed_matrix.h"
#include "kernels/api/linear.h"

namespace baton::model {

// The distinct activation formats of some matrices: mostly one; more when a
// checkpoint mixes weight types.
using FormatSet = std::vector<const kernels::ActivationFormat*>;
FormatSet FormatsOf(std::initializer_list<const PackedMatrix*> matrices);
void AddFormats(FormatSet& set, const FormatSet& more);

// Tiles of rows, each packed in some of the formats of the constructor.
// Distinct tiles, and distinct groups of one tile, may be packed by distinct
// threads.
class PreparedRows final {
 public:
  PreparedRows(const FormatSet& formats, uint32_t inputs, uint32_t tiles);

  // Packs tile `tile`, which holds `tile_rows` rows of `width` values; row r
  // starts at x + r * stride.
  void PackTile(const FormatSet& formats, uint32_t tile, uint32_t tile_rows, const float* x,
                size_t stride, uint32_t width);
  // Packs values [32 group, 32 group + 32) of all rows alone.
  void PackGroup(const FormatSet& formats, uint32_t tile, uint32_t tile_rows, uint32_t group,
                 const float* x, size_t stride);
  // Packs zeros from `group` to the end of the padded rows.
  void PackZeros(const FormatSet& formats, uint32_t tile, uint32_t tile_rows, uint32_t group);

  const std::byte* tile(const kernels::ActivationFormat& format, uint32_t index) const;
  uint64_t bytes() const;

 private:
  struct Store {
    const kernels::ActivationFormat* format;
    size_t tile_bytes;
    AlignedBuffer data;
  };
  const Store& Find(const kernels::ActivationFormat& format) const;
  std::byte* MutableTile(const kernels::ActivationFormat& format, uint32_t index);

  uint32_t inputs_;
  std::vector<Store> stores_;
};

}  // namespace baton::model
