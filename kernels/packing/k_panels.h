// SPDX-License-Identifier: Apache-2.0
// Panels of Q4_K, Q5_K and Q6_K weights, which keep their bits and their
// two-level scales: nothing is lost in packing, and a weight takes 4.625, 5.625
// or 6.5625 bits. A backend adds its Multiply.
//
// A panel holds one record per 256 inputs:
//   64 B            f16 d of each of the 32 outputs
//   64 B            f16 dmin of each output (not Q6_K)
//   8 groups of 32 inputs, each:
//     64 B          Q4_K, Q5_K: u8 [2][32], scale and minimum of each output;
//                   Q6_K: s8 [2][32], scales of the first and second 16 inputs
//     codes         see below
// With codes q, a weight is d * scale * q - dmin * minimum, or for Q6_K
// d * scale * (q - 32).
//
// Codes of a group, of 4 + n bits:
//     512 B         nibbles as in w4_panels.h: byte [b][c][j] of [4][32][4]
//                   holds bits 0-3 of weight 8 b + j of output c in its low
//                   half, of weight 8 b + 4 + j in its high
//     n * 128 B     higher bits: byte [p][c][j] holds those of weights 4 q + j of
//                   output c for the 8 / n quads q of its part p, the first lowest
#pragma once

#include "kernels/packing/w4_panels.h"

namespace baton::kernels {

// A quad of bytes of each output.
inline constexpr size_t kPlane = kNibbleRow;

// kHigh: bits of a code above its nibble, 0 to 2.
template <int kHigh>
inline constexpr size_t kCodeBytes = kPanelNibbles + kHigh* kPlane;

// Puts the codes of 32 weights of output c, 0 to 2^(4 + kHigh) - 1, into place.
template <int kHigh>
void PackCodes(const uint8_t* codes, uint32_t c, std::byte* out);

// A record, by the bits of Q4_K (0), Q5_K (1) and Q6_K (2) above their nibbles.
template <int kHigh>
struct KRecord {
  static constexpr bool kAffine = kHigh < 2;
  static constexpr uint32_t kGroups = 8;
  static constexpr size_t kHead = kAffine ? 2 * kPanelHalves : kPanelHalves;
  static constexpr size_t kScales = 2 * kPanelOutputs;  // bytes before a group's codes
  static constexpr size_t kGroupBytes = kScales + kCodeBytes<kHigh>;
  static constexpr size_t kBytes = kHead + kGroups * kGroupBytes;

  static constexpr uint32_t Count(uint32_t inputs) { return inputs / (kGroups * kGroup); }
  static const std::byte* Group(const std::byte* record, uint32_t group) {
    return record + kHead + group * kGroupBytes;
  }
};

template <int kHigh>
class KPanels : public LinearFormat {
 public:
  size_t PanelBytes(uint32_t inputs) const final;
  void PackPanel(const WeightRows& rows, std::byte* out) const final;
};

extern template void PackCodes<1>(const uint8_t* codes, uint32_t c, std::byte* out);
extern template class KPanels<0>;
extern template class KPanels<1>;
extern template class KPanels<2>;

}  // namespace baton::kernels
