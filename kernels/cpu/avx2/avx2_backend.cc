// SPDX-License-Identifier: Apache-2.0
// Compiled for any x86-64: nothing here may use what available() asks for.
#include "kernels/cpu/avx2/avx2_backend.h"

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/row_ops.h"

namespace baton::kernels {
namespace {

class Avx2 final : public Backend {
 public:
  Avx2() {
    rms_norm = avx2::RmsNorm;
    swiglu = avx2::SwiGlu;
    add = avx2::Add;
    add_tile = avx2::AddTile;
    rope_adjacent = avx2::RopeAdjacent;
    rope_halves = avx2::RopeHalves;
    merge_segment = avx2::MergeSegment;
  }
  std::string_view name() const override { return "avx2"; }
  bool available() const override {
    // Clang 14 does not know the name f16c; every processor with AVX2 has it.
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  const LinearFormat& Linear(WeightType type, Precision precision) const override {
    if (precision == Precision::kExact) return avx2::ExactLinear();
    switch (type) {
      case WeightType::kQ4_0:
        return avx2::W4SymmetricLinear();
      case WeightType::kQ4_1:
        return avx2::W4AffineLinear();
      case WeightType::kQ8_0:
        return avx2::W8Linear();
      case WeightType::kQ5_0:
        return avx2::W5SymmetricLinear();
      case WeightType::kQ5_1:
        return avx2::W5AffineLinear();
      case WeightType::kQ4K:
        return avx2::Q4KLinear();
      case WeightType::kQ5K:
        return avx2::Q5KLinear();
      case WeightType::kQ6K:
        return avx2::Q6KLinear();
      case WeightType::kF32:
      case WeightType::kF16:
      case WeightType::kBf16:
        break;
    }
    return avx2::Bf16Linear();
  }
  const AttentionFormat& Attention(KvElement element) const override {
    switch (element) {
      case KvElement::kF32:
        return avx2::F32Attention();
      case KvElement::kBf16:
        break;
      case KvElement::kInt8:
        return avx2::Int8Attention();
    }
    return avx2::Bf16Attention();
  }
};

}  // namespace

const Backend* Avx2Backend() {
  static const Avx2 backend;
  return &backend;
}

}  // namespace baton::kernels
