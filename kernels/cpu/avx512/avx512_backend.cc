// SPDX-License-Identifier: Apache-2.0
// Compiled for any x86-64: nothing here may use what available() asks for.
#include "kernels/cpu/avx512/avx512_backend.h"

#include "kernels/cpu/avx512/exact.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/row_ops.h"

namespace baton::kernels {
namespace {

bool HasBf16() {
#ifdef BATON_AVX512_VNNI
  return true;  // needs none
#else
  return __builtin_cpu_supports("avx512bf16");
#endif
}

class Avx512 final : public Backend {
 public:
  Avx512() {
    rms_norm = BATON_AVX512::RmsNorm;
    swiglu = BATON_AVX512::SwiGlu;
    add = BATON_AVX512::Add;
    add_tile = BATON_AVX512::AddTile;
    rope_adjacent = BATON_AVX512::RopeAdjacent;
    rope_halves = BATON_AVX512::RopeHalves;
    merge_segment = BATON_AVX512::MergeSegment;
  }
  std::string_view name() const override { return BATON_AVX512_NAME; }
  bool available() const override {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && HasBf16();
  }
  const LinearFormat& Linear(WeightType type, Precision precision) const override {
    if (precision == Precision::kExact) return BATON_AVX512::ExactLinear();
    switch (type) {
      case WeightType::kQ4_0:
        return BATON_AVX512::W4SymmetricLinear();
      case WeightType::kQ4_1:
        return BATON_AVX512::W4AffineLinear();
      case WeightType::kQ8_0:
      case WeightType::kQ5_0:
        return BATON_AVX512::W8Linear();
      case WeightType::kQ5_1:
        return BATON_AVX512::W8AffineLinear();
      case WeightType::kQ4K:
        return BATON_AVX512::Q4KLinear();
      case WeightType::kQ5K:
        return BATON_AVX512::Q5KLinear();
      case WeightType::kQ6K:
        return BATON_AVX512::Q6KLinear();
      case WeightType::kF32:
      case WeightType::kF16:
      case WeightType::kBf16:
        break;
    }
    return BATON_AVX512::Bf16Linear();
  }
  const AttentionFormat& Attention(KvElement element) const override {
    switch (element) {
      case KvElement::kF32:
        return BATON_AVX512::F32Attention();
      case KvElement::kBf16:
        break;
      case KvElement::kInt8:
        return BATON_AVX512::Int8Attention();
    }
    return BATON_AVX512::Bf16Attention();
  }
};

}  // namespace

#ifdef BATON_AVX512_VNNI
const Backend* Avx512VnniBackend() {
#else
const Backend* Avx512Backend() {
#endif
  static const Avx512 backend;
  return &backend;
}

}  // namespace baton::kernels
