// SPDX-License-Identifier: Apache-2.0
// Rotary positions, the KV append, and the queries as attention takes them.
// One warp per head of a row. Layouts: kernels/packing/kv_slices.h.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

constexpr unsigned kWarps = 4;
constexpr uint32_t kMostDims = 256;
constexpr float kToInteger = 12582912.0f;  // 1.5 x 2^23: leaves the rounded value in the low bits

struct Shared {
  float head[kWarps][kMostDims];
};

// Turns pairs by the position's angles, to the bit as the CPU's generic kernels.
BATON_DEVICE void Rotate(const QkvTask& task, int32_t position, float* head) {
  const uint32_t half = task.rotary_dims / 2;
  const float* cosines = task.angles + size_t{static_cast<uint32_t>(position)} * half;
  const float* sines = cosines + task.sines_at;
  for (uint32_t i = Lane(); i < half; i += kWarp) {
    float& x = head[task.pairs == RopePairs::kAdjacent ? 2 * i : i];
    float& y = head[task.pairs == RopePairs::kAdjacent ? 2 * i + 1 : i + half];
    const float x0 = x, y0 = y, c = cosines[i], s = sines[i];
    x = SubRn(MulRn(x0, c), MulRn(y0, s));
    y = AddRn(MulRn(y0, c), MulRn(x0, s));
  }
  SyncWarp();
}

// kernels/packing/hadamard.h, for one head in shared memory.
BATON_DEVICE void Hadamard(float* head, uint32_t size) {
  const uint32_t part = size & (~size + 1);
  for (uint32_t half = part / 2; half > 0; half /= 2) {
    for (uint32_t i = Lane(); i < size / 2; i += kWarp) {
      const uint32_t at = i / half * 2 * half + i % half;
      const float a = head[at], b = head[at + half];
      head[at] = AddRn(a, b);
      head[at + half] = SubRn(a, b);
    }
    SyncWarp();
  }
  // As the host rounds it: 1 / sqrt in double, then to float.
  const auto scale = static_cast<float>(DivRn(1.0, sqrt(static_cast<double>(part))));
  for (uint32_t i = Lane(); i < size; i += kWarp) head[i] = MulRn(head[i], scale);
  SyncWarp();
}

BATON_DEVICE uint32_t LargestMagnitude(const float* head, uint32_t size) {
  uint32_t most = 0;
  for (uint32_t i = Lane(); i < size; i += kWarp) most = Most(most, AsBits(head[i]) & 0x7fffffffu);
  BATON_UNROLL
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) most = Most(most, ShuffleXor(most, mask));
  return most;
}

// kernels/packing/int8_rows.h: ScaleOf and CodeOf.
struct Int8Scale {
  uint16_t bits;
  float inverse;
};
BATON_DEVICE Int8Scale ScaleOf(uint32_t most) {
  if (most >= 0x7f800000u) return {0x7fc0, 0};
  if (most < (127u - 100u) << 23) return {0, 0};
  const uint16_t bits = FloatToBf16(DivRn(AsFloat(most), 127.0f));
  return {bits, DivRn(1.0f, Bf16ToFloat(bits))};
}
BATON_DEVICE uint8_t CodeOf(float value, float inverse) {
  return static_cast<uint8_t>(AsBits(AddRn(MulRn(value, inverse), kToInteger)));
}

BATON_DEVICE void AppendKey(const KvPool& pool, float* head, uint32_t slot, uint8_t* slice) {
  const uint32_t size = pool.head_dim;
  if (pool.element == KvElement::kBf16) {
    for (uint32_t pair = Lane(); pair < size / 2; pair += kWarp) {
      reinterpret_cast<uint32_t*>(slice)[pair * kBlockTokens + slot] =
          FloatsToBf16(head[2 * pair], head[2 * pair + 1]);
    }
    return;
  }
  Hadamard(head, size);
  const Int8Scale scale = ScaleOf(LargestMagnitude(head, size));
  for (uint32_t d = Lane(); d < size; d += kWarp) {
    slice[d * kBlockTokens + slot] = CodeOf(head[d], scale.inverse);
  }
  if (Lane() == 0) reinterpret_cast<uint16_t*>(slice + kBlockTokens * size)[slot] = scale.bits;
}

BATON_DEVICE void AppendValue(const KvPool& pool, const float* head, uint32_t slot,
                              uint8_t* slice) {
  const uint32_t size = pool.head_dim;
  if (pool.element == KvElement::kBf16) {
    auto* values = reinterpret_cast<uint16_t*>(slice);
    for (uint32_t d = Lane(); d < size; d += kWarp) {
      values[(slot / 2 * size + d) * 2 + slot % 2] = FloatToBf16(head[d]);
    }
    return;
  }
  const Int8Scale scale = ScaleOf(LargestMagnitude(head, size));
  for (uint32_t d = Lane(); d < size; d += kWarp) {
    slice[slot * size + d] = CodeOf(head[d], scale.inverse);
  }
  if (Lane() == 0) reinterpret_cast<uint16_t*>(slice + kBlockTokens * size)[slot] = scale.bits;
}

BATON_DEVICE void StoreQuery(const QkvTask& task, uint32_t row, uint32_t head_index, float* head) {
  const uint32_t size = task.pool.head_dim, group = task.heads / task.pool.kv_heads;
  for (uint32_t d = Lane(); d < size; d += kWarp) head[d] = MulRn(head[d], task.scale);
  SyncWarp();
  if (task.pool.element == KvElement::kInt8) Hadamard(head, size);
  const size_t packed =
      size_t{head_index / group} * task.rows * group + size_t{row} * group + head_index % group;
  auto* to = static_cast<uint32_t*>(task.q) + packed * size / 2;
  for (uint32_t pair = Lane(); pair < size / 2; pair += kWarp) {
    to[pair] = FloatsToBf16(head[2 * pair], head[2 * pair + 1]);
  }
}

BATON_KERNEL(kWarps * 32) RopeAppendKernel(QkvTask task) {
  BATON_SHARED(Shared, shared);
  StartAfterProducers();
  const KvPool& pool = task.pool;
  const uint32_t row = BlockIndex().x, heads = task.heads + 2 * pool.kv_heads;
  const uint32_t index = BlockIndex().y * kWarps + WarpIndex();
  const int32_t position = task.positions[row];
  if (position < 0 || index >= heads) return;
  float* head = shared.head[WarpIndex()];
  const float* from = task.qkv + (size_t{row} * heads + index) * pool.head_dim;
  for (uint32_t d = Lane(); d < pool.head_dim; d += kWarp) head[d] = from[d];
  SyncWarp();
  if (index < task.heads + pool.kv_heads) Rotate(task, position, head);
  if (index < task.heads) return StoreQuery(task, row, index, head);
  const uint32_t slot = static_cast<uint32_t>(position) % kBlockTokens;
  auto* slices =
      static_cast<uint8_t*>(pool.data) + task.blocks[row] * pool.block_bytes + pool.layer_offset;
  uint8_t* slice = slices + size_t{index - task.heads} * pool.slice_bytes;
  if (index < task.heads + pool.kv_heads) {
    AppendKey(pool, head, slot, slice);
  } else {
    AppendValue(pool, head, slot, slice);
  }
}

}  // namespace

void RopeAppend(const QkvTask& task, Stream stream) {
  const uint32_t heads = task.heads + 2 * task.pool.kv_heads;
  Launch(RopeAppendKernel, {task.rows, (heads + kWarps - 1) / kWarps}, kWarps * 32, 0, stream,
         task);
}

}  // namespace baton::gpu
