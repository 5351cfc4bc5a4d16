// SPDX-License-Identifier: Apache-2.0
// Attention of a prompt's chunk: 64 queries per block, 16 per warp, over all
// segments in order. The query heads of a KV head are rows beside each other, so
// that K and V are loaded once for all of them.
#include "kernels/cuda/attention.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kWarps = kPrefillRows / kQueryRows;
constexpr uint32_t kStages = 2;
constexpr uint32_t kSegmentBlocks = kSegmentTokens / kBlockTokens;

template <typename S>
struct Shared {
  typename S::Block blocks[kStages];
};

template <typename S>
BATON_DEVICE void MergeSegment(RowState<S>& segment, RowState<S>& total) {
  EndSegment(segment);
  BATON_UNROLL
  for (int r = 0; r < 2; ++r) {
    const MergeFactors factors = FactorsOf(total.max[r], segment.max[r]);
    total.max[r] = factors.max;
    total.sum[r] = Merged(total.sum[r], segment.sum[r], factors);
    BATON_UNROLL
    for (int tile = 0; tile < S::kOuts; ++tile) {
      BATON_UNROLL
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        total.out[tile][i] = Merged(total.out[tile][i], segment.out[tile][i], factors);
      }
    }
  }
  segment.Clear();
}

template <typename S, int kDim>
BATON_DEVICE void StoreContext(const PrefillTask& task, const PrefillItem& item, uint32_t kv_head,
                               const RowState<S>& total) {
  const uint32_t group = task.heads / task.pool.kv_heads, groups = GroupsOf(task.heads * kDim);
  BATON_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t index = WarpIndex() * kQueryRows + Lane() / 4 + r * 8;
    if (index >= item.count) continue;
    const uint32_t packed = item.first + index;
    const uint32_t row = item.first_row + packed / group;
    const uint32_t first_input = (kv_head * group + packed % group) * kDim;
    BATON_UNROLL
    for (int tile = 0; tile < S::kOuts; tile += 2) {  // tile and tile + 1 are neighbours
      BATON_UNROLL
      for (uint32_t column = 0; column < 2; ++column) {
        const uint32_t input = first_input + DimOf<S>(tile, column);
        const float low = DivRn(total.out[tile][2 * r + column], total.sum[r]);
        const float high = DivRn(total.out[tile + 1][2 * r + column], total.sum[r]);
        auto* to = static_cast<uint16_t*>(task.context) + ActivationIndex(row, input, groups);
        *reinterpret_cast<uint32_t*>(to) = FloatsToBf16(low, high);
      }
    }
  }
}

// First block that a position sees beside those that are kept.
BATON_DEVICE uint32_t FirstBlock(uint32_t position, uint32_t before) {
  const uint32_t block = position / kBlockTokens;
  return block > before ? block - before : 0;
}

// The first entry from `entry` on, below `end`, that a position from the block
// `first` on sees; else `end`.
BATON_DEVICE uint32_t NextSeen(const uint32_t* table, uint32_t entry, uint32_t first,
                               uint32_t end) {
  while (entry < end && entry < first) {
    const uint32_t at = table[entry];
    if ((at & kKeptBlock) != 0) return entry;
    entry = (at & kUnseenBlock) != 0 ? at & ~kUnseenBlock : entry + 1;
  }
  return Least(entry, end);
}

template <int kDim, KvElement kElement>
BATON_KERNEL(kWarps * 32)
PrefillKernel(PrefillTask task) {
  using S = BlockShape<kDim, kElement>;
  BATON_DYNAMIC_SHARED(Shared<S>, shared);
  StartAfterProducers();
  const PrefillItem item = task.items[BlockIndex().x];
  const uint32_t kv_head = BlockIndex().y, group = task.heads / task.pool.kv_heads;
  const uint32_t* table = task.tables + size_t{item.table} * task.table_stride;
  const uint32_t last = item.first_position + (item.first + item.count - 1) / group;
  const uint32_t end = last / kBlockTokens + 1;
  const uint32_t first_seen = FirstBlock(item.first_position + item.first / group, item.before);

  const auto load = [&](uint32_t stage, uint32_t entry) {
    const uint32_t id = table[entry] & kBlockIdMask;
    LoadBlock<S>(shared.blocks[stage], KeySlice(task.pool, id, kv_head),
                 ValueSlice(task.pool, id, kv_head), ThreadIndex(), kWarps * 32);
  };
  uint32_t block = NextSeen(table, 0, first_seen, end);
  load(0, block);
  CommitCopies();
  const uint32_t first = WarpIndex() * kQueryRows;
  const uint32_t rows = first < item.count ? Least(kQueryRows, item.count - first) : 0;
  const size_t packed = size_t{kv_head} * task.step_rows * group + size_t{item.first_row} * group +
                        item.first + first;
  uint32_t queries[S::kTimes][4];
  LoadQueries<S, kDim>(static_cast<const uint16_t*>(task.q) + packed * kDim, rows, queries);
  int32_t limits[2];
  uint32_t first_blocks[2];
  BATON_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t row = Lane() / 4 + r * 8;
    const uint32_t position = item.first_position + (item.first + first + row) / group;
    limits[r] = row < rows ? static_cast<int32_t>(position) : -1;
    first_blocks[r] = FirstBlock(position, item.before);
  }
  RowState<S> segment, total;
  segment.Clear();
  total.Clear();
  for (uint32_t stage = 0; block < end; stage ^= 1) {
    // Rows whose window begins later see nothing of a block that is not kept.
    const bool kept = (table[block] & kKeptBlock) != 0;
    int32_t seen[2];
    BATON_UNROLL
    for (int r = 0; r < 2; ++r) seen[r] = kept || block >= first_blocks[r] ? limits[r] : -1;
    const uint32_t next = NextSeen(table, block + 1, first_seen, end);
    if (next < end) load(stage ^ 1, next);
    CommitCopies();
    WaitCopies<1>();
    SyncBlock();
    AttendBlock<S>(shared.blocks[stage], queries, static_cast<int32_t>(block * kBlockTokens), seen,
                   segment);
    const bool segment_ends = next / kSegmentBlocks != block / kSegmentBlocks || next == end;
    if (segment_ends) MergeSegment(segment, total);
    SyncBlock();  // all have used the block before the next load writes there
    block = next;
  }
  // The item once more: kept until here it would take registers of the loop.
  StoreContext<S, kDim>(task, task.items[BlockIndex().x], kv_head, total);
}

}  // namespace

void PrefillAttention(const PrefillTask& task, Stream stream) {
  ForPool(task.pool, [&]<int kDim, KvElement kElement>() {
    Launch(PrefillKernel<kDim, kElement>, {task.item_count, task.pool.kv_heads}, kWarps * 32,
           sizeof(Shared<BlockShape<kDim, kElement>>), stream, task);
  });
}

}  // namespace baton::gpu
