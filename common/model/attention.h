// SPDX-License-Identifier: Apache-2.0
// Attention of a step over the KV arena: rotation, append, segments, merge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/kv/arena.h"
#include "common/model/aligned_buffer.h"
#include "common/model/rope_table.h"
#include "common/model/step.h"
#include "kernels/api/backend.h"

namespace baton::model {

// `decay`: DecayTable(), or nothing.
//
// Thread safety: distinct items, and distinct rows of Append, may be run by
// distinct threads that give distinct `thread`s.
class Attention final {
 public:
  Attention(const checkpoint::ModelConfig& config, const kv::KvLayout& layout,
            const kernels::Backend& backend, const kernels::AttentionFormat& format,
            std::vector<float> decay, uint32_t threads);

  // Makes room for the partial results of a step; before the threads start.
  void Prepare(const Step& step);

  // Rotates K of one row and puts K and V [kv heads, head size] into the arena,
  // of KV heads [head_begin, head_end).
  void Append(const Step& step, const kv::KvArena& arena, uint32_t layer, uint32_t row,
              uint32_t head_begin, uint32_t head_end, uint32_t thread, float* k, const float* v);

  // Replaces a whole item's queries in `q` [rows, heads, head size] by their
  // context; of another one, leaves `q` alone and fills its partial rows.
  // `following`: the item that this thread runs after it, or null.
  void Run(const Step& step, const kv::KvArena& arena, uint32_t layer, const AttentionItem& item,
           const AttentionItem* following, uint32_t thread, float* q);

  // Folds partial rows, in segment order, into `q`.
  void Merge(const Step& step, const MergeItem& item, uint32_t thread, float* q);

 private:
  struct Scratch;
  // Of an AttentionItem or a MergeItem.
  template <typename Item>
  float* QueryRow(const Step& step, const Item& item, uint32_t row, float* q) const;
  // Folds the item's segments into the totals of `scratch`.
  void FoldSegments(const Step& step, const kv::KvArena& arena, uint32_t layer,
                    const AttentionItem& item, const std::byte* next_keys, Scratch& scratch) const;
  static void ClearTotals(uint32_t rows, uint32_t width, Scratch& scratch);
  void LoadQueries(const Step& step, const AttentionItem& item, Scratch& scratch, float* q) const;
  // The blocks of a segment that the rows of one call look at.
  static constexpr uint32_t kSegmentBlocks = kernels::kSegmentTokens / kernels::kBlockTokens;
  struct SegmentBlocks {
    std::array<const std::byte*, kSegmentBlocks> keys, values;
    uint32_t first_token = 0;  // as the kernel counts
  };
  // Of those that `position` sees; returns their number.
  uint32_t ListBlocks(const Slice& slice, const kv::KvArena& arena, uint32_t layer,
                      uint32_t kv_head, uint32_t segment, uint32_t position,
                      SegmentBlocks& blocks) const;
  // The K slice that a segment of an item begins with; null: which one depends on a
  // window.
  const std::byte* FirstKeys(const Step& step, const kv::KvArena& arena, uint32_t layer,
                             const AttentionItem& item, uint32_t segment) const;
  // Rows [first, first + rows) of the item against one segment.
  void AttendTile(const Step& step, const kv::KvArena& arena, uint32_t layer,
                  const AttentionItem& item, uint32_t segment, uint32_t first, uint32_t rows,
                  const std::byte* next_keys, Scratch& scratch, float* max, float* sum,
                  float* out) const;
  // Scales what the rows have of the segment by what their heads make of its age.
  void Decay(const AttentionItem& item, uint32_t layer, uint32_t segment, uint32_t first,
             uint32_t rows, const uint32_t* positions, float* max, float* sum, float* out) const;
  template <typename Item>
  void StoreContext(const Step& step, const Item& item, const Scratch& scratch, float* q) const;

  // Working memory of a thread: one item of at most kMaxRows rows.
  struct Scratch {
    std::vector<uint32_t> positions;  // [rows]
    AlignedBuffer queries;            // [rows, head_dim]
    AlignedBuffer segment_out;        // [kAttentionRows, head_dim]
    AlignedBuffer total_out;          // [rows, head_dim]
    std::vector<float> total_max, total_sum;
  };

  const checkpoint::ModelConfig& config_;
  const kv::KvLayout& layout_;
  const kernels::Backend& backend_;
  const kernels::AttentionFormat& format_;
  kernels::RopeRowFn* const rope_;
  const uint32_t group_;            // query heads of a KV head
  const std::vector<float> decay_;  // [layers, heads], or empty
  const RopeTable angles_;
  std::vector<Scratch> scratch_;  // [threads]
  AlignedBuffer partial_out_;     // [partial rows, head_dim]
  std::vector<float> partial_max_, partial_sum_;
};

}  // namespace baton::model
