// SPDX-License-Identifier: Apache-2.0
// Products with float32 activations: weights in float32, or in bf16 and
// widened. One multiply-add per input and output, over the inputs in order.
#include "kernels/cpu/avx2/float_tile.h"
#include "kernels/cpu/avx2/formats.h"
#include "kernels/packing/bf16_panels.h"
#include "kernels/packing/f32_panels.h"

namespace baton::kernels::avx2 {
namespace {

// A tile of 6 rows takes two passes, with 12 sums in registers; the first
// fetches the next panel.
template <typename Pairs, int R>
__attribute__((noinline)) void MultiplyTile(const std::byte* panel, uint32_t pairs, const float* x,
                                            float* out, Prefetcher prefetch) {
  constexpr int V = kTileVectors<R>;
  for (uint32_t column = 0; column < kPanelOutputs; column += V * kLanes) {
    __m256 sum[R][V];
    Clear(sum);
#pragma GCC unroll 1
    for (uint32_t p = 0; p < pairs; ++p) {
      if (column == 0) prefetch.Step();
      AddPair<Pairs, R, V>(panel + p * Pairs::Bytes(kPanelOutputs), kPanelOutputs, column,
                           x + size_t{p} * 2 * R, 1, R, sum);
    }
    Store(sum, out + column, kPanelOutputs);
  }
}

template <typename Panels, typename Pairs>
class FloatFormat final : public Panels {
 public:
  explicit FloatFormat(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  void Multiply(const std::byte* panel, uint32_t inputs, const std::byte* tile, uint32_t tile_rows,
                float* out, const std::byte* next, size_t next_bytes) const override {
    using Kernel = void(const std::byte*, uint32_t, const float*, float*, Prefetcher);
    static constexpr Kernel* kKernels[kTileRows] = {MultiplyTile<Pairs, 1>, MultiplyTile<Pairs, 2>,
                                                    MultiplyTile<Pairs, 3>, MultiplyTile<Pairs, 4>,
                                                    MultiplyTile<Pairs, 5>, MultiplyTile<Pairs, 6>};
    const uint32_t pairs = (inputs + 1) / 2;  // rows are padded with zeros
    kKernels[tile_rows - 1](panel, pairs, reinterpret_cast<const float*>(tile), out,
                            Prefetcher(next, next_bytes, pairs));
  }

 private:
  const std::string_view name_;
};

}  // namespace

const LinearFormat& ExactLinear() {
  static const FloatFormat<F32Panels, F32Pairs> format("avx2/f32/1");
  return format;
}
const LinearFormat& Bf16Linear() {
  static const FloatFormat<Bf16Panels, Bf16Pairs> format("avx2/bf16/1");
  return format;
}

}  // namespace baton::kernels::avx2
