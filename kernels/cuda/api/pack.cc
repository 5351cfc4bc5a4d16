// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/api/pack.h"

#include <cstring>
#include <vector>

#include "common/base/block_quant.h"
#include "common/base/half_float.h"
#include "kernels/packing/dequantize.h"

namespace baton::gpu {
namespace {

using kernels::WeightType;

// Of a tile's output and an input of the group: its lane, which of the half's
// four A words, and which half of the word.
struct WeightPlace {
  uint32_t lane, half, word, high;
};
WeightPlace PlaceOfWeight(uint32_t output, uint32_t input) {
  const uint32_t in_half = input % 16;
  return {output % 8 * 4 + in_half % 8 / 2, input / 16, in_half / 8 * 2 + output / 8, input % 2};
}

void PutHalf(std::byte* record, uint32_t offset, uint32_t output, float value) {
  const uint16_t bits = FloatToHalf(value);
  std::memcpy(record + offset + (output % 8 * 2 + output / 8) * sizeof(bits), &bits, sizeof(bits));
}

void PutBf16(std::byte* record, const WeightPlace& place, float value) {
  const uint16_t bits = FloatToBf16(value);
  const uint32_t at = place.half * 512 + place.lane * 16 + place.word * 4 + place.high * 2;
  std::memcpy(record + at, &bits, sizeof(bits));
}

// Word half * 2 + word / 2 of the lane: bytes 0 and 2 of even words, 1 and 3 of
// odd ones.
void PutInt8(std::byte* record, const WeightPlace& place, int8_t code) {
  const uint32_t at =
      place.lane * 16 + (place.half * 2 + place.word / 2) * 4 + place.high * 2 + place.word % 2;
  record[at] = static_cast<std::byte>(code);
}

// Word `half` of the lane: nibble `word`, or 4 behind it.
void PutInt4(std::byte* record, const WeightPlace& place, uint32_t nibble) {
  const uint32_t at = place.lane * 8 + place.half * 4 + place.high * 2 + place.word / 2;
  record[at] |= static_cast<std::byte>(nibble << (place.word % 2 * 4));
}

void PackQuantGroup(WeightFormat format, const QuantGroup& group, uint32_t output,
                    std::byte* record) {
  const uint32_t codes = format == WeightFormat::kInt8 ? 512 : 256;
  PutHalf(record, codes, output, group.scales[0]);
  if (format == WeightFormat::kInt4Affine) PutHalf(record, codes + 32, output, group.offset);
  const int zero = format == WeightFormat::kInt4 ? 8 : 0;
  for (uint32_t i = 0; i < kGroupInputs; ++i) {
    const WeightPlace place = PlaceOfWeight(output, i);
    if (format == WeightFormat::kInt8) {
      PutInt8(record, place, group.codes[i]);
    } else {
      PutInt4(record, place, static_cast<uint32_t>(group.codes[i] + zero));
    }
  }
}

// A row that is not there: codes of zero with a scale of zero.
QuantGroup Nothing() { return {}; }

}  // namespace

WeightFormat FormatOf(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0:
      return WeightFormat::kInt8;
    case WeightType::kQ4_0:
      return WeightFormat::kInt4;
    case WeightType::kQ4_1:
    case WeightType::kQ4K:
      return WeightFormat::kInt4Affine;
    default:
      return WeightFormat::kBf16;
  }
}

std::optional<StoredType> StoredTypeOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return StoredType::kF32;
    case WeightType::kF16:
      return StoredType::kF16;
    case WeightType::kBf16:
      return StoredType::kBf16;
    case WeightType::kQ8_0:
      return StoredType::kQ8_0;
    case WeightType::kQ4_0:
      return StoredType::kQ4_0;
    case WeightType::kQ4_1:
      return StoredType::kQ4_1;
    case WeightType::kQ4K:
      return StoredType::kQ4K;
    default:
      return std::nullopt;
  }
}

void PackTile(WeightType type, std::span<const StoredRow, kTileOutputs> rows, uint32_t inputs,
              std::span<std::byte> out) {
  const WeightFormat format = FormatOf(type);
  const BlockQuant* quant = kernels::QuantOf(type);
  const uint32_t groups = GroupsOf(inputs);
  std::memset(out.data(), 0, out.size());
  std::vector<float> values(groups * kGroupInputs);
  for (uint32_t output = 0; output < kTileOutputs; ++output) {
    if (format == WeightFormat::kBf16) {
      if (rows[output] == nullptr) continue;
      kernels::DequantizeRow({type, rows[output], 0, 1, inputs}, 0, values.data());
    }
    for (uint32_t g = 0; g < groups; ++g) {
      std::byte* record = out.data() + size_t{g} * RecordBytes(format);
      if (format == WeightFormat::kBf16) {
        for (uint32_t i = 0; i < kGroupInputs; ++i) {
          PutBf16(record, PlaceOfWeight(output, i), values[g * kGroupInputs + i]);
        }
        continue;
      }
      QuantGroup group = Nothing();
      if (rows[output] != nullptr) ReadQuantGroup(*quant, rows[output], g, &group);
      PackQuantGroup(format, group, output, record);
    }
  }
}

}  // namespace baton::gpu
