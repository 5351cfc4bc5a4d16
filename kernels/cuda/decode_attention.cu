// SPDX-License-Identifier: Apache-2.0
// Attention of single positions: a warp per 256-token segment, KV head and 16
// query heads of its group, then the segments merged in order.
#include "kernels/cuda/attention.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kWarps = 2;
constexpr uint32_t kStages = 2;
constexpr uint32_t kSegmentBlocks = kSegmentTokens / kBlockTokens;

template <typename S>
struct Shared {
  typename S::Block blocks[kWarps][kStages];
};

// Where a head's partial results of a segment stand.
BATON_DEVICE size_t PartialIndex(const DecodeTask& task, uint32_t sequence, uint32_t head,
                                 uint32_t segment) {
  return (size_t{sequence} * task.heads + head) * task.segments + segment;
}

template <typename S, int kDim>
BATON_DEVICE void StorePartial(const DecodeTask& task, uint32_t first_head, uint32_t rows,
                               uint32_t segment, const RowState<S>& state) {
  BATON_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t row = Lane() / 4 + r * 8;
    if (row >= rows) continue;
    const size_t at = PartialIndex(task, BlockIndex().z, first_head + row, segment);
    BATON_UNROLL
    for (int tile = 0; tile < S::kOuts; ++tile) {
      BATON_UNROLL
      for (uint32_t column = 0; column < 2; ++column) {
        task.partial_out[at * kDim + DimOf<S>(tile, column)] = state.out[tile][2 * r + column];
      }
    }
    if (Lane() % 4 == 0) {
      task.partial_sums[2 * at] = state.max[r];
      task.partial_sums[2 * at + 1] = state.sum[r];
    }
  }
}

template <int kDim, KvElement kElement>
BATON_KERNEL(kWarps * 32)
DecodeKernel(DecodeTask task) {
  using S = BlockShape<kDim, kElement>;
  BATON_DYNAMIC_SHARED(Shared<S>, shared);
  StartAfterProducers();
  const uint32_t sequence = BlockIndex().z, segment = BlockIndex().x * kWarps + WarpIndex();
  const int32_t position = task.positions[sequence];
  const auto first_token = static_cast<int32_t>(segment * kSegmentTokens);
  if (first_token > position) return;  // also of a padded sequence
  const uint32_t group = task.heads / task.pool.kv_heads;
  const uint32_t parts = (group + kQueryRows - 1) / kQueryRows;
  const uint32_t kv_head = BlockIndex().y / parts, part = BlockIndex().y % parts;
  const uint32_t rows = Least(kQueryRows, group - part * kQueryRows);
  const uint32_t* table = task.tables + size_t{sequence} * task.table_stride;
  const uint32_t end =
      Least(static_cast<uint32_t>(position) / kBlockTokens + 1, (segment + 1) * kSegmentBlocks);
  uint32_t block = SeenFrom(table, segment * kSegmentBlocks);
  if (block >= end) return;  // nothing of the segment is seen

  typename S::Block* stages = shared.blocks[WarpIndex()];
  const auto load = [&](uint32_t stage, uint32_t entry) {
    const uint32_t id = table[entry] & kBlockIdMask;
    LoadBlock<S>(stages[stage], KeySlice(task.pool, id, kv_head),
                 ValueSlice(task.pool, id, kv_head), Lane(), kWarp);
  };
  load(0, block);
  CommitCopies();
  uint32_t queries[S::kTimes][4];
  const size_t packed = size_t{kv_head} * task.step_rows * group +
                        size_t{task.q_rows[sequence]} * group + part * kQueryRows;
  LoadQueries<S, kDim>(static_cast<const uint16_t*>(task.q) + packed * kDim, rows, queries);
  RowState<S> state;
  state.Clear();
  const int32_t limits[2] = {position, position};
  for (uint32_t stage = 0; block < end; stage ^= 1) {
    const uint32_t next = block + 1 < end ? SeenFrom(table, block + 1) : end;
    if (next < end) load(stage ^ 1, next);
    CommitCopies();
    WaitCopies<1>();
    SyncWarp();
    AttendBlock<S>(stages[stage], queries, static_cast<int32_t>(block * kBlockTokens), limits,
                   state);
    SyncWarp();  // all have used the block before the next load writes there
    block = next;
  }
  EndSegment(state);
  StorePartial<S, kDim>(task, kv_head * group + part * kQueryRows, rows, segment, state);
}

constexpr unsigned kCombineThreads = 128;

// Merges a head's segments; a thread has some dims, all compute the factors.
BATON_KERNEL(kCombineThreads) CombineKernel(DecodeTask task) {
  StartAfterProducers();
  const uint32_t head = BlockIndex().x, sequence = BlockIndex().y;
  const int32_t position = task.positions[sequence];
  if (position < 0) return;
  const uint32_t* table = task.tables + size_t{sequence} * task.table_stride;
  const uint32_t end = static_cast<uint32_t>(position) / kBlockTokens + 1;
  const uint32_t dims = task.pool.head_dim, groups = GroupsOf(task.heads * dims);
  for (uint32_t dim = ThreadIndex(); dim < dims; dim += kCombineThreads) {
    float max = kNothing, sum = 0, out = 0;
    for (uint32_t block = 0; block < end; block = (block / kSegmentBlocks + 1) * kSegmentBlocks) {
      block = SeenFrom(table, block);
      const size_t at = PartialIndex(task, sequence, head, block / kSegmentBlocks);
      const MergeFactors factors = FactorsOf(max, task.partial_sums[2 * at]);
      max = factors.max;
      sum = Merged(sum, task.partial_sums[2 * at + 1], factors);
      out = Merged(out, task.partial_out[at * dims + dim], factors);
    }
    static_cast<uint16_t*>(
        task.context)[ActivationIndex(task.q_rows[sequence], head * dims + dim, groups)] =
        FloatToBf16(DivRn(out, sum));
  }
}

}  // namespace

void DecodeAttention(const DecodeTask& task, Stream stream) {
  const uint32_t group = task.heads / task.pool.kv_heads;
  const uint32_t parts = (group + kQueryRows - 1) / kQueryRows;
  const Dim grid = {(task.segments + kWarps - 1) / kWarps, task.pool.kv_heads * parts,
                    task.sequences};
  ForPool(task.pool, [&]<int kDim, KvElement kElement>() {
    Launch(DecodeKernel<kDim, kElement>, grid, kWarps * 32,
           sizeof(Shared<BlockShape<kDim, kElement>>), stream, task);
  });
  Launch(CombineKernel, {task.heads, task.sequences}, kCombineThreads, 0, stream, task);
}

}  // namespace baton::gpu
