// SPDX-License-Identifier: Apache-2.0
// Compiled for any x86-64: nothing here may use what available() asks for.
#include "kernels/cpu/avx512/avx512_backend.h"

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx512/exact.h"
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/row_ops.h"

namespace baton::kernels {
namespace {

class Avx512 final : public Backend {
 public:
  Avx512() {
    rms_norm = avx512::RmsNorm;
    swiglu = avx512::SwiGlu;
    add = avx512::Add;
    add_tile = avx512::AddTile;
    rope_adjacent = avx512::RopeAdjacent;
    rope_halves = avx512::RopeHalves;
    merge_segment = avx512::MergeSegment;
  }
  std::string_view name() const override { return "avx512"; }
  bool available() const override {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  }
  const LinearFormat& Linear(WeightType type, Precision precision) const override {
    if (precision == Precision::kExact) return avx512::ExactLinear();
    switch (type) {
      case WeightType::kQ4_0:
        return avx512::W4SymmetricLinear();
      case WeightType::kQ4_1:
        return avx512::W4AffineLinear();
      case WeightType::kQ8_0:
      case WeightType::kQ5_0:
        return avx512::W8Linear();
      case WeightType::kQ5_1:
        return avx512::W8AffineLinear();
      case WeightType::kQ4K:
        return avx512::Q4KLinear();
      case WeightType::kQ5K:
        return avx512::Q5KLinear();
      case WeightType::kQ6K:
        return avx512::Q6KLinear();
      case WeightType::kF32:
      case WeightType::kF16:
      case WeightType::kBf16:
        break;
    }
    return avx512::Bf16Linear();
  }
  const AttentionFormat& Attention(KvElement element) const override {
    switch (element) {
      case KvElement::kF32:
        return avx512::F32Attention();
      case KvElement::kBf16:
        break;
      case KvElement::kInt8:
        return avx2::Int8Attention();  // every CPU with AVX-512 runs it
    }
    return avx512::Bf16Attention();
  }
};

}  // namespace

const Backend* Avx512Backend() {
  static const Avx512 backend;
  return &backend;
}

}  // namespace baton::kernels
