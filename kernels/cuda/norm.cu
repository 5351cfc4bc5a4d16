// SPDX-License-Identifier: Apache-2.0
// RMSNorm of the residual into activations (Zhang and Sennrich, 2019). The
// residual is added by the product before it (Epilogue::kAdd).
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

constexpr unsigned kThreads = 256;

struct Shared {
  float sums[kThreads / kWarp];
};

// A fixed order whatever the row: each thread's own, its warp's, the warps'.
BATON_DEVICE float SumOfSquares(const float* x, uint32_t size, Shared& shared) {
  float sum = 0;
  for (uint32_t i = 4 * ThreadIndex(); i < size; i += 4 * kThreads) {
    const auto four = LoadAs<Words4>(x + i);
    BATON_UNROLL
    for (int j = 0; j < 4; ++j) sum = Fma(AsFloat(four.word[j]), AsFloat(four.word[j]), sum);
  }
  sum = WarpSum(sum);
  if (Lane() == 0) shared.sums[WarpIndex()] = sum;
  SyncBlock();
  float total = 0;
  BATON_UNROLL
  for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) total = AddRn(total, shared.sums[warp]);
  return total;
}

BATON_DEVICE float Normed(const float* x, const float* weight, float scale, uint32_t at) {
  return MulRn(MulRn(x[at], scale), weight[at]);
}

BATON_KERNEL(kThreads) NormKernel(NormTask task) {
  BATON_SHARED(Shared, shared);
  StartAfterProducers();
  const uint32_t row = BlockIndex().x;
  const uint32_t source = task.source == nullptr ? row : task.source[row];
  const float* x = task.x + size_t{source} * task.hidden;
  const float mean = DivRn(SumOfSquares(x, task.hidden, shared), static_cast<float>(task.hidden));
  const float scale = Rsqrt(AddRn(mean, task.epsilon));
  // A thread writes the 16 bytes of a lane: four pairs of inputs.
  const uint32_t groups = GroupsOf(task.hidden);
  for (uint32_t i = ThreadIndex(); i < groups * 4; i += kThreads) {
    const uint32_t first = i / 4 * kGroupInputs + i % 4 * 2;
    Words4 out;
    BATON_UNROLL
    for (uint32_t pair = 0; pair < 4; ++pair) {
      const uint32_t at = first + pair * 8;
      out.word[pair] =
          FloatsToBf16(Normed(x, task.weight, scale, at), Normed(x, task.weight, scale, at + 1));
    }
    const size_t at =
        task.plain ? PlainIndex(row, first, task.hidden) : ActivationIndex(row, first, groups);
    auto* to = static_cast<uint16_t*>(task.out) + at;
    *reinterpret_cast<Words4*>(to) = out;
  }
}

}  // namespace

void RmsNorm(const NormTask& task, Stream stream) {
  Launch(NormKernel, {task.rows}, kThreads, 0, stream, task);
}

}  // namespace baton::gpu
