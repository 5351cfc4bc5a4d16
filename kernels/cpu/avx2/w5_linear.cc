// SPDX-License-Identifier: Apache-2.0
// 5-bit weights (Q5_0, Q5_1) times s8 activations. A panel holds one record per
// group of 32 inputs:
//   64 B     f16 scale d of each of the 32 outputs
//   64 B     f16 minimum m of each output (Q5_1 only)
//   640 B    codes of 5 bits, as in kernels/packing/k_panels.h
// A weight is d * (q - 16), or d * q + m, whose product is computed as
//   d * scale * sum (q - 16) a  +  (m + 16 d) * scale * sum a
// with both sums exact.
#include <cstring>

#include "common/base/block_quant.h"
#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/integer_tile.h"
#include "kernels/packing/dequantize.h"

namespace baton::kernels::avx2 {
namespace {

template <bool kIsAffine>
struct W5Weights {
  static constexpr bool kAffine = kIsAffine;
  static constexpr size_t kCodes = kAffine ? 2 * kPanelHalves : kPanelHalves;  // offset
  static constexpr size_t kRecordBytes = kCodes + kCodeBytes<1>;
  static constexpr uint32_t kRecordGroups = 1, kParts = 1;

  template <int kPart, int R, int C>
  __attribute__((always_inline)) static inline void Dot(const std::byte* record, uint32_t /*group*/,
                                                        uint32_t column, const uint32_t* a,
                                                        __m256i (&dot)[R][C]) {
    FillShift5(a, dot);
    DotGroup<1>(record + kCodes + column * 4, a, dot);
    SumPairs(dot);
  }

  template <int kPart>
  static __m256 Scale(const std::byte* record, uint32_t /*group*/, uint32_t column) {
    return LoadHalf(record + column * 2);
  }
  static __m256 Minimum(const std::byte* record, uint32_t /*group*/, uint32_t column, __m256 d) {
    return _mm256_fmadd_ps(d, _mm256_set1_ps(16.0f), LoadHalf(record + kPanelHalves + column * 2));
  }

  static __m256 Column(const std::byte* record, uint32_t /*group*/, uint32_t k, uint32_t column) {
    const __m256 q = _mm256_cvtepi32_ps(CodeColumn<1>(record + kCodes, k, column));
    const __m256 d = LoadHalf(record + column * 2);
    const __m256 m = kAffine ? LoadHalf(record + kPanelHalves + column * 2)
                             : _mm256_mul_ps(d, _mm256_set1_ps(-16.0f));
    return _mm256_fmadd_ps(q, d, m);
  }
};

template <bool kAffine>
class W5Format final : public LinearFormat {
 public:
  std::string_view name() const override {
    return kAffine ? "avx2/w5-affine-a8-g32/1" : "avx2/w5a8-g32/1";
  }
  const ActivationFormat& activation() const override { return S8Activations(); }
  size_t PanelBytes(uint32_t inputs) const override {
    return size_t{GroupCount(inputs)} * W5Weights<kAffine>::kRecordBytes;
  }
  void PackPanel(const WeightRows& rows, std::byte* out) const override;
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    MultiplyRows<W5Weights<kAffine>>(panel, inputs, tile, tile_rows, out, next, next_bytes);
  }
};

// A stored block begins with d (f16), in Q5_1 then m (f16).
template <bool kAffine>
void W5Format<kAffine>::PackPanel(const WeightRows& rows, std::byte* out) const {
  using Weights = W5Weights<kAffine>;
  constexpr int kZero = kAffine ? 0 : 16;
  const BlockQuant& quant = *QuantOf(rows.type);
  std::memset(out, 0, PanelBytes(rows.inputs));
  for (uint32_t c = 0; c < rows.rows; ++c) {
    const std::byte* block = rows.data + c * rows.row_bytes;
    std::byte* record = out;
    for (uint32_t g = 0; g < GroupCount(rows.inputs); ++g) {
      std::memcpy(record + c * 2, block, 2);
      if (kAffine) std::memcpy(record + kPanelHalves + c * 2, block + 2, 2);
      QuantGroup group;
      quant.read(block, 0, &group);
      uint8_t codes[kGroup];
      for (uint32_t k = 0; k < kGroup; ++k) codes[k] = static_cast<uint8_t>(group.codes[k] + kZero);
      PackCodes<1>(codes, c, record + Weights::kCodes);
      block += quant.bytes;
      record += Weights::kRecordBytes;
    }
  }
}

}  // namespace

const LinearFormat& W5SymmetricLinear() {
  static const W5Format<false> format;
  return format;
}
const LinearFormat& W5AffineLinear() {
  static const W5Format<true> format;
  return format;
}

}  // namespace baton::kernels::avx2
