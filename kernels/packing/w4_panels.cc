// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing/w4_panels.h"

#include <cstring>

namespace baton::kernels {

template <bool kAffine>
size_t W4Panels<kAffine>::PanelBytes(uint32_t inputs) const {
  return size_t{(inputs + kGroup - 1) / kGroup} * W4Record<kAffine>::kBytes;
}

// A stored block is d (f16), then m (f16, Q4_1 only), then 16 bytes: weight i
// in the low half of byte i, weight 16 + i in its high half.
template <bool kAffine>
void W4Panels<kAffine>::PackPanel(const WeightRows& rows, std::byte* out) const {
  using Record = W4Record<kAffine>;
  constexpr size_t kHeader = kAffine ? 4 : 2;
  constexpr size_t kBlock = kHeader + kGroup / 2;
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
  const uint32_t groups = (rows.inputs + kGroup - 1) / kGroup;
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    for (uint32_t g = 0; g < groups; ++g) {
      const std::byte* block = rows.data + c * rows.row_bytes + g * kBlock;
      std::byte* record = out + g * Record::kBytes;
      std::memcpy(record + c * 2, block, 2);
      if (kAffine) std::memcpy(record + kPanelHalves + c * 2, block + 2, 2);
      uint64_t stored[2];
      std::memcpy(stored, block + kHeader, sizeof(stored));
      const uint32_t words[4] = {PairNibbles(stored[0] & kLow), PairNibbles(stored[1] & kLow),
                                 PairNibbles(stored[0] >> 4 & kLow),
                                 PairNibbles(stored[1] >> 4 & kLow)};
      std::byte* nibbles = record + Record::kNibbles + c * 4;
      for (uint32_t b = 0; b < 4; ++b) std::memcpy(nibbles + b * kNibbleRow, &words[b], 4);
    }
  }
}

template class W4Panels<false>;
template class W4Panels<true>;

}  // namespace baton::kernels
