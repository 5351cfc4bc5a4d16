// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights, for backends that multiply them as integers with the
// zero point of affine weights moved to 8.
//
// A panel holds one record per group of 32 inputs:
//   64 B           f16 scale d of each of the 32 outputs
//   64 B           f16 minimum m of each output (affine only)
//   512 B          nibbles: byte [b][c][j] of [4][32][4] holds weight 8 b + j
//                  of output c in its low half, weight 8 b + 4 + j in its high
// A weight is d * (q - 8) (symmetric, Q4_0) or d * q + m (affine, Q4_1). The
// affine product is computed as
//   d * scale * sum (q - 8) a  +  (m + 8 d) * scale * sum a
// with both sums exact; m + 8 d is much smaller than m.
#pragma once

#include "kernels/api/linear.h"

namespace baton::kernels {

inline constexpr size_t kPanelHalves = kPanelOutputs * 2;            // bytes of 32 f16
inline constexpr size_t kPanelNibbles = kPanelOutputs * kGroup / 2;  // bytes of a group
inline constexpr size_t kNibbleRow = kPanelOutputs * 4;              // bytes of 8 of its inputs

template <bool kAffine>
struct W4Record {
  static constexpr size_t kNibbles = kAffine ? 2 * kPanelHalves : kPanelHalves;  // offset
  static constexpr size_t kBytes = kNibbles + kPanelNibbles;
};

// Eight nibbles, one in the low half of each byte, as the word of one output
// in a row of nibbles: the first four low, the others high.
constexpr uint32_t PairNibbles(uint64_t nibbles) {
  return static_cast<uint32_t>(nibbles) | static_cast<uint32_t>(nibbles >> 32) << 4;
}

template <bool kAffine>
class W4Panels : public LinearFormat {
 public:
  size_t PanelBytes(uint32_t inputs) const final;
  void PackPanel(const WeightRows& rows, std::byte* out) const final;
};
extern template class W4Panels<false>;
extern template class W4Panels<true>;

}  // namespace baton::kernels
