// SPDX-License-Identifier: Apache-2.0
// Tiles of activations rounded to bf16: pairs [inputs / 2][rows]. Denormals
// become zero, as in every bf16 instruction.
#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/simd.h"

namespace baton::kernels::BATON_AVX512 {
namespace {

constexpr uint32_t kPairs = kGroup / 2;

class Bf16ActivationFormat final : public ActivationFormat {
 public:
  std::string_view name() const override { return BATON_AVX512_NAME "/bf16"; }
  uint32_t PaddedInputs(uint32_t inputs) const override {
    return (inputs + kGroup - 1) / kGroup * kGroup;
  }
  size_t TileBytes(uint32_t inputs) const override {
    return size_t{PaddedInputs(inputs)} * 2 * kTileRows;
  }
  void PackGroup(const float* x, std::byte* tile, uint32_t /*inputs*/, uint32_t tile_rows,
                 uint32_t row, uint32_t group) const override {
    alignas(64) uint32_t pairs[kPairs];
    _mm512_store_si512(pairs, ToBf16(_mm512_loadu_ps(x), _mm512_loadu_ps(x + kLanes)));
    uint32_t* words = reinterpret_cast<uint32_t*>(tile) + size_t{group} * kPairs * tile_rows + row;
    for (uint32_t i = 0; i < kPairs; ++i) words[i * tile_rows] = pairs[i];
  }
};

}  // namespace

const ActivationFormat& Bf16Activations() {
  static const Bf16ActivationFormat format;
  return format;
}

}  // namespace baton::kernels::BATON_AVX512
