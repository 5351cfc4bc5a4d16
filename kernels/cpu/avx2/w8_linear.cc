// SPDX-License-Identifier: Apache-2.0
// 8-bit weights (Q8_0) times s8 activations.
//
// A product of u8 and s8 bytes saturates in vpmaddubsw, and would leave no room
// to add. A weight w is therefore split into nibbles, w = 16 (h - 8) + l with
// h, l in [0, 15], and both go the way of 4-bit weights. A panel holds one
// record per group of 32 inputs:
//   64 B    f16 scale d of each of the 32 outputs
//   512 B   l, as nibbles of kernels/packing/w4_panels.h
//   512 B   h, likewise
// The product of a group is d * scale * sum w a, the integer exact.
#include <cstring>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/integer_tile.h"

namespace baton::kernels::avx2 {
namespace {

constexpr size_t kLow = kPanelHalves;
constexpr size_t kHigh = kLow + kPanelNibbles;

struct W8Weights {
  static constexpr bool kAffine = false;
  static constexpr size_t kRecordBytes = kHigh + kPanelNibbles;
  static constexpr uint32_t kRecordGroups = 1, kParts = 1;

  template <int kPart, int R, int C>
  __attribute__((always_inline)) static inline void Dot(const std::byte* record, uint32_t /*group*/,
                                                        uint32_t column, const uint32_t* a,
                                                        __m256i (&dot)[R][C]) {
    // Both sets of sums do not fit into registers: the first waits in memory.
    alignas(32) __m256i high[R][C];
    FillShift4(a, dot);
    DotGroup<0>(record + kHigh + column * 4, a, dot);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        _mm256_store_si256(&high[r][c], SumPairs(dot[r][c], 16));
        dot[r][c] = _mm256_setzero_si256();
      }
    }
    ForgetMemory();
    DotGroup<0>(record + kLow + column * 4, a, dot);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        dot[r][c] = _mm256_add_epi32(SumPairs(dot[r][c]), _mm256_load_si256(&high[r][c]));
      }
    }
  }

  template <int kPart>
  static __m256 Scale(const std::byte* record, uint32_t /*group*/, uint32_t column) {
    return LoadHalf(record + column * 2);
  }

  static __m256 Column(const std::byte* record, uint32_t /*group*/, uint32_t k, uint32_t column) {
    const __m256i high =
        _mm256_sub_epi32(CodeColumn<0>(record + kHigh, k, column), _mm256_set1_epi32(8));
    const __m256i q =
        _mm256_add_epi32(_mm256_slli_epi32(high, 4), CodeColumn<0>(record + kLow, k, column));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(q), LoadHalf(record + column * 2));
  }
};

class W8Format final : public LinearFormat {
 public:
  std::string_view name() const override { return "avx2/w8a8-g32/2"; }
  const ActivationFormat& activation() const override { return S8Activations(); }
  size_t PanelBytes(uint32_t inputs) const override {
    return size_t{GroupCount(inputs)} * W8Weights::kRecordBytes;
  }
  void PackPanel(const WeightRows& rows, std::byte* out) const override;
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    MultiplyRows<W8Weights>(panel, inputs, tile, tile_rows, out, next, next_bytes);
  }
};

// A stored block is d (f16), then 32 s8.
void W8Format::PackPanel(const WeightRows& rows, std::byte* out) const {
  constexpr size_t kBlock = 2 + kGroup;
  constexpr uint64_t kLowHalves = 0x0f0f0f0f0f0f0f0f;
  const uint32_t groups = GroupCount(rows.inputs);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    for (uint32_t g = 0; g < groups; ++g) {
      const std::byte* block = rows.data + c * rows.row_bytes + g * kBlock;
      std::byte* record = out + g * W8Weights::kRecordBytes;
      std::memcpy(record + c * 2, block, 2);
      for (uint32_t b = 0; b < kGroup / 8; ++b) {
        uint64_t stored;
        std::memcpy(&stored, block + 2 + b * 8, sizeof(stored));
        stored ^= 0x8080808080808080;  // plus 128: the high nibbles plus 8
        const uint32_t low = PairNibbles(stored & kLowHalves);
        const uint32_t high = PairNibbles(stored >> 4 & kLowHalves);
        std::memcpy(record + kLow + b * kNibbleRow + c * 4, &low, 4);
        std::memcpy(record + kHigh + b * kNibbleRow + c * 4, &high, 4);
      }
    }
  }
}

}  // namespace

const LinearFormat& W8Linear() {
  static const W8Format format;
  return format;
}

}  // namespace baton::kernels::avx2
