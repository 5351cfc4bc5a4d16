// SPDX-License-Identifier: Apache-2.0
// A record of packed weights (api/fragments.h) as the lanes of a warp use it.
#pragma once

#include "kernels/cuda/api/fragments.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {

// The 16 x 32 weights of a group as two A operands, times their scales; low:
// of row g, high: of row g + 8.
struct Weights {
  uint32_t a[2][4];
  float scale_low, scale_high, minimum_low, minimum_high;
};

BATON_DEVICE void LoadPair(const unsigned char* at, float& low, float& high) {
  const auto pair = LoadAs<uint32_t>(at + Lane() / 4 * 4);
  low = HalfToFloat(static_cast<uint16_t>(pair));
  high = HalfToFloat(static_cast<uint16_t>(pair >> 16));
}

template <WeightFormat kFormat>
BATON_DEVICE void LoadWeights(const unsigned char* record, Weights& weights) {
  if constexpr (kFormat == WeightFormat::kBf16) {
    BATON_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto words = LoadAs<Words4>(record + half * 512 + Lane() * 16);
      BATON_UNROLL
      for (int i = 0; i < 4; ++i) weights.a[half][i] = words.word[i];
    }
  } else if constexpr (kFormat == WeightFormat::kInt8) {
    const auto words = LoadAs<Words4>(record + Lane() * 16);
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      weights.a[i / 2][i % 2 * 2] = CodesToBf16(words.word[i]);
      weights.a[i / 2][i % 2 * 2 + 1] = CodesToBf16(words.word[i] >> 8);
    }
    LoadPair(record + 512, weights.scale_low, weights.scale_high);
  } else {
    struct alignas(8) Words2 {
      uint32_t word[2];
    };
    // 128 + nibble, less 128 or, for symmetric weights, 136.
    constexpr uint32_t kZero = kFormat == WeightFormat::kInt4 ? 0x43084308u : 0x43004300u;
    const auto words = LoadAs<Words2>(record + Lane() * 8);
    BATON_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t nibbles = words.word[i / 4] >> (i % 4 * 4) & 0x000f000fu;
      weights.a[i / 4][i % 4] = SubBf16(0x43004300u | nibbles, kZero);
    }
    LoadPair(record + 256, weights.scale_low, weights.scale_high);
    if constexpr (kFormat == WeightFormat::kInt4Affine) {
      LoadPair(record + 288, weights.minimum_low, weights.minimum_high);
    }
  }
}

}  // namespace baton::gpu
