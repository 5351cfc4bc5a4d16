// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding table as float32.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

constexpr unsigned kThreads = 128;

// Four values from `at` on.
template <TableType kType>
BATON_DEVICE Words4 FourValues(const void* table, size_t at) {
  if constexpr (kType == TableType::kF32) {
    return LoadAs<Words4>(static_cast<const float*>(table) + at);
  } else {
    struct alignas(8) Pairs {
      uint32_t pair[2];
    };
    const auto pairs = LoadAs<Pairs>(static_cast<const uint16_t*>(table) + at);
    Words4 values;
    BATON_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto bits = static_cast<uint16_t>(pairs.pair[i / 2] >> (16 * (i % 2)));
      values.word[i] = AsBits(kType == TableType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits));
    }
    return values;
  }
}

template <TableType kType>
BATON_KERNEL(kThreads)
EmbedKernel(EmbedTask task) {
  StartAfterProducers();
  const uint32_t row = BlockIndex().x;
  const int32_t source = task.sources == nullptr ? -1 : task.sources[row];
  uint32_t token = source < 0 ? task.tokens[row] : task.chosen[source];
  if (token >= task.vocabulary) token = 0;
  const size_t from = size_t{token} * task.hidden;
  float* to = task.x + size_t{row} * task.hidden;
  for (uint32_t i = 4 * ThreadIndex(); i < task.hidden; i += 4 * kThreads) {
    *reinterpret_cast<Words4*>(to + i) = FourValues<kType>(task.table, from + i);
  }
}

}  // namespace

void Embed(const EmbedTask& task, Stream stream) {
  auto* kernel = task.type == TableType::kF32   ? EmbedKernel<TableType::kF32>
                 : task.type == TableType::kF16 ? EmbedKernel<TableType::kF16>
                                                : EmbedKernel<TableType::kBf16>;
  Launch(kernel, {task.rows}, kThreads, 0, stream, task);
}

}  // namespace baton::gpu
