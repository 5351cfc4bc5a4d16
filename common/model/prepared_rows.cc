// SPDX-License-Identifier: Apache-2.0
#include "common/model/prepared_rows.h"

#include <algorithm>
#include <utility>

namespace baton::model {
namespace {

using kernels::ActivationFormat;
using kernels::kGroup;

}  // namespace

FormatSet FormatsOf(std::initializer_list<const PackedMatrix*> matrices) {
  FormatSet set;
  for (const PackedMatrix* matrix : matrices) AddFormats(set, {&matrix->format().activation()});
  return set;
}

void AddFormats(FormatSet& set, const FormatSet& more) {
  for (const ActivationFormat* format : more) {
    if (std::find(set.begin(), set.end(), format) == set.end()) set.push_back(format);
  }
}

PreparedRows::PreparedRows(const FormatSet& formats, uint32_t inputs, uint32_t tiles)
    : inputs_(inputs) {
  for (const ActivationFormat* format : formats) {
    const size_t tile_bytes = format->TileBytes(inputs);
    stores_.push_back({format, tile_bytes, AlignedBuffer(tile_bytes * tiles)});
  }
}

void PreparedRows::PackTile(const FormatSet& formats, uint32_t tile, uint32_t tile_rows,
                            const float* x, size_t stride, uint32_t width) {
  const uint32_t whole = width / kGroup, rest = width % kGroup;
  for (const ActivationFormat* format : formats) {
    format->PackGroups(x, stride, MutableTile(*format, tile), inputs_, tile_rows, 0, whole);
  }
  if (rest > 0) {
    alignas(64) float tails[kernels::kTileRows * kGroup] = {};
    for (uint32_t r = 0; r < tile_rows; ++r) {
      std::copy_n(x + r * stride + size_t{whole} * kGroup, rest, tails + r * kGroup);
    }
    PackGroup(formats, tile, tile_rows, whole, tails, kGroup);
  }
  PackZeros(formats, tile, tile_rows, whole + (rest > 0 ? 1 : 0));
}

void PreparedRows::PackGroup(const FormatSet& formats, uint32_t tile, uint32_t tile_rows,
                             uint32_t group, const float* x, size_t stride) {
  for (const ActivationFormat* format : formats) {
    format->PackGroups(x, stride, MutableTile(*format, tile), inputs_, tile_rows, group, 1);
  }
}

void PreparedRows::PackZeros(const FormatSet& formats, uint32_t tile, uint32_t tile_rows,
                             uint32_t group) {
  alignas(64) static constexpr float kZeros[kGroup] = {};
  for (const ActivationFormat* format : formats) {
    for (uint32_t g = group; g < format->PaddedInputs(inputs_) / kGroup; ++g) {
      format->PackGroups(kZeros, 0, MutableTile(*format, tile), inputs_, tile_rows, g, 1);
    }
  }
}

const std::byte* PreparedRows::tile(const ActivationFormat& format, uint32_t index) const {
  const Store& store = Find(format);
  return store.data.data() + index * store.tile_bytes;
}

std::byte* PreparedRows::MutableTile(const ActivationFormat& format, uint32_t index) {
  return const_cast<std::byte*>(std::as_const(*this).tile(format, index));
}

const PreparedRows::Store& PreparedRows::Find(const ActivationFormat& format) const {
  size_t i = 0;
  while (stores_[i].format != &format) ++i;  // one to three entries
  return stores_[i];
}

uint64_t PreparedRows::bytes() const {
  uint64_t bytes = 0;
  for (const Store& store : stores_) bytes += store.data.size();
  return bytes;
}

}  // namespace baton::model
