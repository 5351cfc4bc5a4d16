// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/k_panels.h"

#include <cstring>

#include "common/base/block_quant.h"
#include "kernels/packing/dequantize.h"

namespace baton::kernels {
namespace {

// The scales of output c, from its stored block.
template <int kHigh>
void PackScales(const std::byte* block, uint32_t c, std::byte* record) {
  using Record = KRecord<kHigh>;
  if constexpr (Record::kAffine) {
    std::memcpy(record + c * 2, block + kKScaleAt, 2);
    std::memcpy(record + kPanelHalves + c * 2, block + kKMinimumAt, 2);
  } else {
    std::memcpy(record + c * 2, block + kQ6KScaleAt, 2);
  }
  const KScales k = UnpackKScales(block + kKPackedAt);  // of no meaning for Q6_K
  for (uint32_t g = 0; g < Record::kGroups; ++g) {
    std::byte* scales = record + Record::kHead + g * Record::kGroupBytes + c;
    if constexpr (Record::kAffine) {
      scales[0] = static_cast<std::byte>(k.scales[g]);
      scales[kPanelOutputs] = static_cast<std::byte>(k.minima[g]);
    } else {
      scales[0] = block[kQ6KScalesAt + 2 * g];
      scales[kPanelOutputs] = block[kQ6KScalesAt + 2 * g + 1];
    }
  }
}

}  // namespace

template <int kHigh>
void PackCodes(const uint8_t* codes, uint32_t c, std::byte* out) {
  uint32_t low[4] = {}, high[2] = {};
  for (uint32_t quad = 0; quad < kGroup / 4; ++quad) {
    uint32_t word;
    std::memcpy(&word, codes + quad * 4, sizeof(word));
    low[quad / 2] |= (word & 0x0f0f0f0f) << (quad % 2 * 4);
    if constexpr (kHigh > 0) {
      high[quad * kHigh / 8] |= (word >> 4 & 0x0f0f0f0f) << (quad * kHigh % 8);
    }
  }
  for (uint32_t b = 0; b < 4; ++b) std::memcpy(out + b * kNibbleRow + c * 4, &low[b], 4);
  for (uint32_t p = 0; p < kHigh; ++p) {
    std::memcpy(out + kPanelNibbles + p * kPlane + c * 4, &high[p], 4);
  }
}

template <int kHigh>
size_t KPanels<kHigh>::PanelBytes(uint32_t inputs) const {
  return size_t{KRecord<kHigh>::Count(inputs)} * KRecord<kHigh>::kBytes;
}

template <int kHigh>
void KPanels<kHigh>::PackPanel(const WeightRows& rows, std::byte* out) const {
  using Record = KRecord<kHigh>;
  // Codes of Q6_K are -32 to 31.
  constexpr int kZero = Record::kAffine ? 0 : 32;
  const BlockQuant& quant = *QuantOf(rows.type);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    const std::byte* block = rows.data + c * rows.row_bytes;
    std::byte* record = out;
    for (uint32_t i = 0; i < Record::Count(rows.inputs); ++i) {
      PackScales<kHigh>(block, c, record);
      for (uint32_t g = 0; g < Record::kGroups; ++g) {
        QuantGroup group;
        quant.read(block, g, &group);
        uint8_t codes[kGroup];
        for (uint32_t k = 0; k < kGroup; ++k) {
          codes[k] = static_cast<uint8_t>(group.codes[k] + kZero);
        }
        PackCodes<kHigh>(codes, c,
                         record + Record::kHead + g * Record::kGroupBytes + Record::kScales);
      }
      block += quant.bytes;
      record += Record::kBytes;
    }
  }
}

template void PackCodes<1>(const uint8_t* codes, uint32_t c, std::byte* out);
template class KPanels<0>;
template class KPanels<1>;
template class KPanels<2>;

}  // namespace baton::kernels
