// SPDX-License-Identifier: Apache-2.0
// Q4_K, Q5_K and Q6_K weights times s8 activations; panels as in
// kernels/packing/k_panels.h. Five bits are taken less 16, six bits less 32,
// which keeps the sums of s16 in range; the minimum makes up for it.
#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/integer_tile.h"

namespace baton::kernels::avx2 {
namespace {

BATON_INLINE __m256 LoadU8(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}
BATON_INLINE __m256 LoadS8(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

// What both kinds have in common.
template <int kHigh>
struct KWeights {
  using Record = KRecord<kHigh>;
  static constexpr bool kAffine = Record::kAffine;
  static constexpr size_t kRecordBytes = Record::kBytes;
  static constexpr uint32_t kRecordGroups = Record::kGroups;

  static const std::byte* Codes(const std::byte* record, uint32_t group) {
    return Record::Group(record, group) + Record::kScales;
  }
  static __m256 CodesOf(const std::byte* record, uint32_t group, uint32_t k, uint32_t column) {
    return _mm256_cvtepi32_ps(CodeColumn<kHigh>(Codes(record, group), k, column));
  }
};

// Q4_K (kHigh 0) and Q5_K (1).
template <int kHigh>
struct AffineWeights : KWeights<kHigh> {
  using Base = KWeights<kHigh>;
  using typename Base::Record;
  static constexpr uint32_t kParts = 1;

  template <int kPart, int R, int C>
  __attribute__((always_inline)) static inline void Dot(const std::byte* record, uint32_t group,
                                                        uint32_t column, const uint32_t* a,
                                                        __m256i (&dot)[R][C]) {
    if constexpr (kHigh == 0) {
      FillShift4(a, dot);
    } else {
      FillShift5(a, dot);
    }
    DotGroup<kHigh>(Base::Codes(record, group) + column * 4, a, dot);
    SumPairs(dot);
  }

  template <int kPart>
  static __m256 Scale(const std::byte* record, uint32_t group, uint32_t column) {
    return _mm256_mul_ps(LoadHalf(record + column * 2),
                         LoadU8(Record::Group(record, group) + column));
  }
  // Of the codes as stored.
  static __m256 StoredMinimum(const std::byte* record, uint32_t group, uint32_t column) {
    return _mm256_mul_ps(LoadHalf(record + kPanelHalves + column * 2),
                         LoadU8(Record::Group(record, group) + kPanelOutputs + column));
  }
  static __m256 Minimum(const std::byte* record, uint32_t group, uint32_t column, __m256 scale) {
    constexpr float kZero = kHigh == 0 ? 8 : 16;
    return _mm256_fmsub_ps(scale, _mm256_set1_ps(kZero), StoredMinimum(record, group, column));
  }
  static __m256 Column(const std::byte* record, uint32_t group, uint32_t k, uint32_t column) {
    return _mm256_fmsub_ps(Base::CodesOf(record, group, k, column), Scale<0>(record, group, column),
                           StoredMinimum(record, group, column));
  }
};

struct Q6Weights : KWeights<2> {
  static constexpr uint32_t kParts = 2;

  template <int kPart, int R, int C>
  __attribute__((always_inline)) static inline void Dot(const std::byte* record, uint32_t group,
                                                        uint32_t column, const uint32_t* a,
                                                        __m256i (&dot)[R][C]) {
    Fill(
        [a](int r) {
          __m256i shift = Broadcast(a + S8Tile::kFirstHalf4 * R + r);
          if constexpr (kPart == 1) {
            shift = _mm256_sub_epi16(Broadcast(a + S8Tile::kShift4 * R + r), shift);
          }
          return _mm256_slli_epi16(shift, 2);
        },
        dot);
    DotHalf<2, kPart>(Codes(record, group) + column * 4, a, dot);
    SumPairs(dot);
  }

  static __m256 HalfScale(const std::byte* record, uint32_t group, uint32_t half, uint32_t column) {
    return _mm256_mul_ps(LoadHalf(record + column * 2),
                         LoadS8(Record::Group(record, group) + half * kPanelOutputs + column));
  }
  template <int kPart>
  static __m256 Scale(const std::byte* record, uint32_t group, uint32_t column) {
    return HalfScale(record, group, kPart, column);
  }
  static __m256 Column(const std::byte* record, uint32_t group, uint32_t k, uint32_t column) {
    const __m256 code = _mm256_sub_ps(CodesOf(record, group, k, column), _mm256_set1_ps(32.0f));
    return _mm256_mul_ps(code, HalfScale(record, group, k / 16, column));
  }
};

template <int kHigh, typename Weights>
class KFormat final : public KPanels<kHigh> {
 public:
  explicit KFormat(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  const ActivationFormat& activation() const override { return S8Activations(); }
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    MultiplyRows<Weights>(panel, inputs, tile, tile_rows, out, next, next_bytes);
  }

 private:
  const std::string_view name_;
};

}  // namespace

const LinearFormat& Q4KLinear() {
  static const KFormat<0, AffineWeights<0>> format("avx2/q4k-a8-g32/1");
  return format;
}
const LinearFormat& Q5KLinear() {
  static const KFormat<1, AffineWeights<1>> format("avx2/q5k-a8-g32/1");
  return format;
}
const LinearFormat& Q6KLinear() {
  static const KFormat<2, Q6Weights> format("avx2/q6k-a8-g16/1");
  return format;
}

}  // namespace baton::kernels::avx2
