// SPDX-License-Identifier: Apache-2.0
// Between the fragments of our own kernels and plain rows of bf16, which the
// vendor's matrix library takes (PlainIndex of api/fragments.h), and SwiGLU of
// its results.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/swiglu.h"
#include "kernels/cuda/weight_records.h"

namespace baton::gpu {
namespace {

constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;

// Eight values of a row, of one group, from slot 8 t on.
BATON_DEVICE void StoreEight(void* out, uint32_t row, uint32_t group, uint32_t inputs,
                             const Words4& words) {
  auto* to = static_cast<uint16_t*>(out) + size_t{row} * inputs + group * kGroupInputs;
  *reinterpret_cast<Words4*>(to + Lane() % 4 * 8) = words;
}

// A pair of values times the row's scale, plus its minimum, as bf16.
template <WeightFormat kFormat>
BATON_DEVICE uint32_t Scaled(uint32_t pair, float scale, float minimum) {
  if constexpr (kFormat == WeightFormat::kBf16) return pair;
  float low = MulRn(LowBf16(pair), scale), high = MulRn(HighBf16(pair), scale);
  if constexpr (kFormat == WeightFormat::kInt4Affine) {
    low = AddRn(low, minimum);
    high = AddRn(high, minimum);
  }
  return FloatsToBf16(low, high);
}

// A warp per record: 16 outputs of a group.
template <WeightFormat kFormat>
BATON_KERNEL(kThreads)
UnpackKernel(UnpackTask task) {
  StartAfterProducers();
  const uint32_t groups = GroupsOf(task.inputs);
  const uint32_t group = BlockIndex().x * kWarps + WarpIndex(), tile = BlockIndex().y;
  if (group >= groups) return;
  const size_t record = size_t{tile} * groups + group;
  Weights weights{};
  LoadWeights<kFormat>(
      static_cast<const unsigned char*>(task.weights) + record * RecordBytes(kFormat), weights);
  BATON_UNROLL
  for (uint32_t high = 0; high < 2; ++high) {
    const uint32_t output = tile * kTileOutputs + Lane() / 4 + high * 8;
    if (output >= task.outputs) continue;
    const float scale = high == 0 ? weights.scale_low : weights.scale_high;
    const float minimum = high == 0 ? weights.minimum_low : weights.minimum_high;
    Words4 words;
    BATON_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      words.word[i] = Scaled<kFormat>(weights.a[i / 2][i % 2 * 2 + high], scale, minimum);
    }
    StoreEight(task.out, output, group, task.inputs, words);
  }
}

// A warp per record: 8 rows of a group.
BATON_KERNEL(kThreads) PlainRowsKernel(PlainRowsTask task) {
  StartAfterProducers();
  const uint32_t groups = GroupsOf(task.inputs);
  const uint32_t group = BlockIndex().x * kWarps + WarpIndex(), tile = BlockIndex().y;
  const uint32_t row = tile * kTileRows + Lane() / 4;
  if (group >= groups || row >= task.rows) return;
  const size_t record = size_t{tile} * groups + group;
  const auto words =
      LoadAs<Words4>(static_cast<const unsigned char*>(task.from) + record * 512 + Lane() * 16);
  StoreEight(task.out, row, group, task.inputs, words);
}

// Eight gates and their eight ups side by side; a thread has four pairs, of the
// inputs that stand beside each other in a plain row.
BATON_KERNEL(kThreads) SwiGluKernel(SwiGluTask task) {
  StartAfterProducers();
  const uint32_t row = BlockIndex().y, eights = task.inputs / 8;
  const uint32_t eight = BlockIndex().x * kThreads + ThreadIndex();
  if (eight >= eights) return;
  const uint32_t group = eight / 4, t = eight % 4;
  const float* from = task.from + size_t{row} * task.inputs * 2;
  Words4 words;
  BATON_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t input = group * kGroupInputs + i * 8 + 2 * t;
    const float* gates = from + input / 8 * kTileOutputs + input % 8;
    words.word[i] = FloatsToBf16(GatedUp(gates[0], gates[8]), GatedUp(gates[1], gates[9]));
  }
  auto* to = static_cast<uint16_t*>(task.out) + size_t{row} * task.inputs + eight * 8;
  *reinterpret_cast<Words4*>(to) = words;
}

Dim RecordGrid(uint32_t inputs, uint32_t tiles) {
  return {(GroupsOf(inputs) + kWarps - 1) / kWarps, tiles};
}

}  // namespace

void UnpackWeights(const UnpackTask& task, Stream stream) {
  auto* kernel = task.format == WeightFormat::kBf16   ? UnpackKernel<WeightFormat::kBf16>
                 : task.format == WeightFormat::kInt8 ? UnpackKernel<WeightFormat::kInt8>
                 : task.format == WeightFormat::kInt4 ? UnpackKernel<WeightFormat::kInt4>
                                                      : UnpackKernel<WeightFormat::kInt4Affine>;
  Launch(kernel, RecordGrid(task.inputs, TilesOf(task.outputs)), kThreads, 0, stream, task);
}

void PlainRows(const PlainRowsTask& task, Stream stream) {
  Launch(PlainRowsKernel, RecordGrid(task.inputs, RowTilesOf(task.rows)), kThreads, 0, stream,
         task);
}

void SwiGlu(const SwiGluTask& task, Stream stream) {
  Launch(SwiGluKernel, {(task.inputs / 8 + kThreads - 1) / kThreads, task.rows}, kThreads, 0,
         stream, task);
}

}  // namespace baton::gpu
