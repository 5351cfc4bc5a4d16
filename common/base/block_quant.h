// SPDX-License-Identifier: Apache-2.0
// Block-quantized values as GGUF stores them (ggml's Q8_0, Q4_0, Q4_1, Q5_0,
// Q5_1, Q4_K, Q5_K, Q6_K): the one place that knows the layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/half_float.h"

namespace baton {

// All types work in groups of 32 values:
//   value i = scales[i / 16] * codes[i] + offset
// in float32, which is the definition of the types to the bit.
inline constexpr uint32_t kQuantGroup = 32;
struct QuantGroup {
  float scales[2];  // equal but for Q6_K
  float offset;     // 0 for types with a fixed zero point
  int8_t codes[kQuantGroup];
};

// A type: blocks of `values` values in `bytes` bytes. Stateless constants.
struct BlockQuant {
  std::string_view name;
  uint32_t values, bytes;
  // Decodes group `group` (below values / 32) of a block.
  void (*read)(const std::byte* block, uint32_t group, QuantGroup* out);
};
extern const BlockQuant kQuantQ8_0, kQuantQ4_0, kQuantQ4_1, kQuantQ5_0, kQuantQ5_1, kQuantQ4K,
    kQuantQ5K, kQuantQ6K;

// Group `group` of consecutive blocks.
inline void ReadQuantGroup(const BlockQuant& quant, const std::byte* blocks, uint64_t group,
                           QuantGroup* out) {
  const uint32_t per_block = quant.values / kQuantGroup;
  quant.read(blocks + group / per_block * quant.bytes, static_cast<uint32_t>(group % per_block),
             out);
}

// Values [begin, begin + out.size()) of consecutive blocks; any range within
// them.
void Dequantize(const BlockQuant& quant, const std::byte* blocks, uint64_t begin,
                std::span<float> out);

// The 6-bit scales and minima of the eight groups of a Q4_K or Q5_K block, from
// its 12 packed bytes: of group i, scale = d * scales[i], offset = -(dmin * minima[i]).
struct KScales {
  uint8_t scales[8], minima[8];
};
KScales UnpackKScales(const std::byte* packed);
// Where a Q4_K or Q5_K block holds d, dmin and the packed scales; Q6_K its s8
// scales and d.
inline constexpr size_t kKScaleAt = 0, kKMinimumAt = 2, kKPackedAt = 4;
inline constexpr size_t kQ6KScalesAt = 192, kQ6KScaleAt = 208;

}  // namespace baton
