// SPDX-License-Identifier: Apache-2.0
// 4-bit weights times s8 activations; panels as in kernels/packing/w4_panels.h.
#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/integer_tile.h"

namespace baton::kernels::avx2 {
namespace {

template <bool kIsAffine>
struct W4Weights {
  using Record = W4Record<kIsAffine>;
  static constexpr bool kAffine = kIsAffine;
  static constexpr size_t kRecordBytes = Record::kBytes;
  static constexpr uint32_t kRecordGroups = 1, kParts = 1;

  template <int kPart, int R, int C>
  __attribute__((always_inline)) static inline void Dot(const std::byte* record, uint32_t /*group*/,
                                                        uint32_t column, const uint32_t* a,
                                                        __m256i (&dot)[R][C]) {
    FillShift4(a, dot);
    DotGroup<0>(record + Record::kNibbles + column * 4, a, dot);
    SumPairs(dot);
  }

  template <int kPart>
  static __m256 Scale(const std::byte* record, uint32_t /*group*/, uint32_t column) {
    return LoadHalf(record + column * 2);
  }
  // m + 8 d by additions, which do not compete with the dot products for their
  // execution ports (Zen 4).
  static __m256 Minimum(const std::byte* record, uint32_t /*group*/, uint32_t column, __m256 d) {
    const __m256 d2 = _mm256_add_ps(d, d), d4 = _mm256_add_ps(d2, d2);
    return _mm256_add_ps(LoadHalf(record + kPanelHalves + column * 2), _mm256_add_ps(d4, d4));
  }

  static __m256 Column(const std::byte* record, uint32_t /*group*/, uint32_t k, uint32_t column) {
    const __m256i q = CodeColumn<0>(record + Record::kNibbles, k, column);
    const __m256 d = LoadHalf(record + column * 2);
    const __m256 m = kAffine ? LoadHalf(record + kPanelHalves + column * 2)
                             : _mm256_mul_ps(d, _mm256_set1_ps(-8.0f));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(q), d, m);
  }
};

template <bool kAffine>
class W4Format final : public W4Panels<kAffine> {
 public:
  std::string_view name() const override {
    return kAffine ? "avx2/w4-affine-a8-g32/2" : "avx2/w4a8-g32/2";
  }
  const ActivationFormat& activation() const override { return S8Activations(); }
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    MultiplyRows<W4Weights<kAffine>>(panel, inputs, tile, tile_rows, out, next, next_bytes);
  }
};

}  // namespace

const LinearFormat& W4AffineLinear() {
  static const W4Format<true> format;
  return format;
}
const LinearFormat& W4SymmetricLinear() {
  static const W4Format<false> format;
  return format;
}

}  // namespace baton::kernels::avx2
