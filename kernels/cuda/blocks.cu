// SPDX-License-Identifier: Apache-2.0
// Copies, gathers, scatters and zeroes KV blocks, 16 bytes per thread.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint32_t kPieceBytes = 16384;  // of a block of threads

Dim GridOf(uint64_t bytes, uint32_t count) {
  return {static_cast<unsigned>((bytes + kPieceBytes - 1) / kPieceBytes), count};
}

// Calls body(offset) for the 16-byte chunks of the piece.
template <typename Body>
BATON_DEVICE void ForChunks(uint64_t bytes, Body body) {
  const uint64_t begin = uint64_t{BlockIndex().x} * kPieceBytes;
  const uint64_t end = Least<uint64_t>(begin + kPieceBytes, bytes);
  for (uint64_t at = begin + ThreadIndex() * 16; at < end; at += kThreads * 16) body(at);
}

BATON_KERNEL(kThreads) CopyKernel(CopyTask task) {
  StartAfterProducers();
  const uint32_t i = BlockIndex().y;
  const uint64_t from_index = task.from == nullptr ? i : task.from[i];
  const uint64_t to_index = task.to == nullptr ? i : task.to[i];
  const auto* from = static_cast<const unsigned char*>(task.from_base) +
                     from_index * task.from_stride + task.from_offset;
  auto* to = static_cast<unsigned char*>(task.to_base) + to_index * task.to_stride + task.to_offset;
  ForChunks(task.bytes,
            [&](uint64_t at) { *reinterpret_cast<Words4*>(to + at) = LoadAs<Words4>(from + at); });
}

BATON_KERNEL(kThreads) ZeroKernel(ZeroTask task) {
  StartAfterProducers();
  auto* to = static_cast<unsigned char*>(task.base) + task.index[BlockIndex().y] * task.stride;
  ForChunks(task.bytes, [&](uint64_t at) { *reinterpret_cast<Words4*>(to + at) = Words4{}; });
}

}  // namespace

void CopyBlocks(const CopyTask& task, Stream stream) {
  Launch(CopyKernel, GridOf(task.bytes, task.count), kThreads, 0, stream, task);
}

void ZeroBlocks(const ZeroTask& task, Stream stream) {
  Launch(ZeroKernel, GridOf(task.bytes, task.count), kThreads, 0, stream, task);
}

}  // namespace baton::gpu
