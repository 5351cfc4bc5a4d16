// SPDX-License-Identifier: Apache-2.0
#include "common/model/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/model/fetch.h"

namespace baton::model {
namespace {

using kernels::kAttentionRows;
using kernels::kBlockTokens;
using kernels::kSegmentTokens;

static_assert(kBlockTokens == kv::kBlockTokens);
constexpr uint32_t kMaxRows = 4 * kAttentionRows;

}  // namespace

Attention::Attention(const checkpoint::ModelConfig& config, const kv::KvLayout& layout,
                     const kernels::Backend& backend, const kernels::AttentionFormat& format,
                     std::vector<float> decay, uint32_t threads)
    : config_(config),
      layout_(layout),
      backend_(backend),
      format_(format),
      rope_(config.rope_style == checkpoint::RopeStyle::kHalves ? backend.rope_halves
                                                                : backend.rope_adjacent),
      group_(config.heads / config.kv_heads),
      decay_(std::move(decay)),
      angles_(config.context, config.rotary_dims, config.rope_base) {
  const size_t row_bytes = sizeof(float) * layout.head_dim;
  for (uint32_t i = 0; i < threads; ++i) {
    scratch_.push_back({std::vector<uint32_t>(kMaxRows), AlignedBuffer(kMaxRows * row_bytes),
                        AlignedBuffer(kAttentionRows * row_bytes),
                        AlignedBuffer(kMaxRows * row_bytes), std::vector<float>(kMaxRows),
                        std::vector<float>(kMaxRows)});
  }
}

void Attention::Prepare(const Step& step) {
  if (partial_max_.size() >= step.partial_rows) return;
  partial_max_.resize(step.partial_rows);
  partial_sum_.resize(step.partial_rows);
  partial_out_ = AlignedBuffer(step.partial_rows * sizeof(float) * layout_.head_dim);
}

void Attention::Append(const Step& step, const kv::KvArena& arena, uint32_t layer, uint32_t row,
                       uint32_t head_begin, uint32_t head_end, uint32_t thread, float* k,
                       const float* v) {
  const uint32_t position = step.rows[row].position;
  const kv::BlockId block = step.slices[step.rows[row].slice].blocks[position / kBlockTokens];
  std::byte* keys = arena.Layer(block, layer);
  std::byte* values = keys + config_.kv_heads * layout_.SliceBytes();
  const uint32_t width = layout_.head_dim;
  float* padded = scratch_[thread].segment_out.floats();  // K, then V
  std::fill_n(padded, 2 * size_t{width}, 0.0f);
  for (uint32_t h = head_begin; h < head_end; ++h) {
    float* key = k + size_t{h} * config_.head_dim;
    rope_({key, config_.rotary_dims}, angles_.cos(position), angles_.sin(position));
    std::copy_n(key, config_.head_dim, padded);
    std::copy_n(v + size_t{h} * config_.head_dim, config_.head_dim, padded + width);
    format_.Append(padded, padded + width, width, position % kBlockTokens,
                   keys + h * layout_.SliceBytes(), values + h * layout_.SliceBytes());
  }
}

template <typename Item>
float* Attention::QueryRow(const Step& step, const Item& item, uint32_t row, float* q) const {
  const size_t step_row = step.first_row[item.slice] + (item.first + row) / group_;
  const uint32_t head = item.kv_head * group_ + (item.first + row) % group_;
  return q + (step_row * config_.heads + head) * config_.head_dim;
}

void Attention::LoadQueries(const Step& step, const AttentionItem& item, Scratch& scratch,
                            float* q) const {
  // All at once, and to be written: another core may have them.
  for (uint32_t r = 0; r < item.rows; ++r) {
    const float* query = QueryRow(step, item, r, q);
    for (uint32_t d = 0; d < config_.head_dim; d += kCacheLineFloats) FetchToWrite(query + d);
  }
  const auto scale = static_cast<float>(std::numbers::log2e / std::sqrt(config_.head_dim));
  for (uint32_t r = 0; r < item.rows; ++r) {
    const size_t step_row = step.first_row[item.slice] + (item.first + r) / group_;
    const uint32_t position = step.rows[step_row].position;
    float* query = scratch.queries.floats() + size_t{r} * layout_.head_dim;
    std::copy_n(QueryRow(step, item, r, q), config_.head_dim, query);
    std::fill(query + config_.head_dim, query + layout_.head_dim, 0.0f);
    rope_({query, config_.rotary_dims}, angles_.cos(position), angles_.sin(position));
    for (uint32_t d = 0; d < config_.head_dim; ++d) query[d] *= scale;
    format_.PrepareQuery(query, layout_.head_dim);
    scratch.positions[r] = position;
  }
}

uint32_t Attention::ListBlocks(const Slice& slice, const kv::KvArena& arena, uint32_t layer,
                               uint32_t kv_head, uint32_t segment, uint32_t position,
                               SegmentBlocks& blocks) const {
  const uint32_t end = std::min((segment + 1) * kSegmentBlocks, position / kBlockTokens + 1);
  uint32_t count = 0, last = 0;
  for (uint32_t block = segment * kSegmentBlocks; block < end; ++block) {
    if (!slice.window.SeesBlock(position, block)) continue;
    const std::byte* data = arena.Layer(slice.blocks[block], layer);
    blocks.keys[count] = data + kv_head * layout_.SliceBytes();
    blocks.values[count] = blocks.keys[count] + config_.kv_heads * layout_.SliceBytes();
    last = block;
    ++count;
  }
  // All but the last are seen whole: to the kernel they stand right before it.
  blocks.first_token = count == 0 ? 0 : (last + 1 - count) * kBlockTokens;
  return count;
}

const std::byte* Attention::FirstKeys(const Step& step, const kv::KvArena& arena, uint32_t layer,
                                      const AttentionItem& item, uint32_t segment) const {
  const Slice& slice = step.slices[item.slice];
  if (slice.window.limited()) return nullptr;
  return arena.Layer(slice.blocks[segment * kSegmentBlocks], layer) +
         item.kv_head * layout_.SliceBytes();
}

void Attention::AttendTile(const Step& step, const kv::KvArena& arena, uint32_t layer,
                           const AttentionItem& item, uint32_t segment, uint32_t first,
                           uint32_t rows, const std::byte* next_keys, Scratch& scratch, float* max,
                           float* sum, float* out) const {
  const Slice& slice = step.slices[item.slice];
  const size_t width = layout_.head_dim;
  const uint32_t* positions = scratch.positions.data() + first;
  for (uint32_t done = 0; done < rows;) {
    uint32_t end = rows;  // rows of one block of positions see the same blocks
    const uint32_t block = positions[done] / kBlockTokens;
    while (slice.window.limited() && positions[end - 1] / kBlockTokens != block) --end;
    SegmentBlocks blocks;
    const uint32_t count =
        ListBlocks(slice, arena, layer, item.kv_head, segment, positions[end - 1], blocks);
    if (count == 0) {
      std::fill_n(max + done, end - done, kernels::kNoScore);
      std::fill_n(sum + done, end - done, 0.0f);
      std::fill_n(out + done * width, (end - done) * width, 0.0f);
    } else {
      format_.Attend({.head_dim = layout_.head_dim,
                      .rows = end - done,
                      .queries = scratch.queries.floats() + (first + done) * width,
                      .positions = positions + done,
                      .first_token = blocks.first_token,
                      .blocks = count,
                      .keys = blocks.keys.data(),
                      .values = blocks.values.data(),
                      .next_keys = next_keys,
                      .max = max + done,
                      .sum = sum + done,
                      .out = out + done * width});
    }
    done = end;
  }
  if (!decay_.empty()) Decay(item, layer, segment, first, rows, positions, max, sum, out);
}

// Sums and outputs of a segment are linear in its weights.
void Attention::Decay(const AttentionItem& item, uint32_t layer, uint32_t segment, uint32_t first,
                      uint32_t rows, const uint32_t* positions, float* max, float* sum,
                      float* out) const {
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t head = item.kv_head * group_ + (item.first + first + r) % group_;
    const float factor = decay_[size_t{layer} * config_.heads + head];
    const uint32_t own = positions[r] / kSegmentTokens;
    if (factor == 1.0f || segment >= own) continue;
    float weight = factor;
    for (uint32_t age = own - segment; age > 1 && weight > 0; --age) weight *= factor;
    float* row = out + size_t{r} * layout_.head_dim;
    if (weight == 0.0f) {
      // What is not seen must not decide about the scale of the others either.
      max[r] = kernels::kNoScore;
      sum[r] = 0;
      std::fill_n(row, layout_.head_dim, 0.0f);
      continue;
    }
    sum[r] *= weight;
    for (uint32_t d = 0; d < layout_.head_dim; ++d) row[d] *= weight;
  }
}

void Attention::ClearTotals(uint32_t rows, uint32_t width, Scratch& scratch) {
  std::fill_n(scratch.total_out.floats(), size_t{rows} * width, 0.0f);
  std::fill_n(scratch.total_max.begin(), rows, kernels::kNoScore);
  std::fill_n(scratch.total_sum.begin(), rows, 0.0f);
}

void Attention::FoldSegments(const Step& step, const kv::KvArena& arena, uint32_t layer,
                             const AttentionItem& item, const std::byte* next_keys,
                             Scratch& scratch) const {
  const uint32_t width = layout_.head_dim;
  ClearTotals(item.rows, width, scratch);
  std::array<float, kAttentionRows> max, sum;
  const Slice& slice = step.slices[item.slice];
  for (uint32_t segment = item.segment_begin; segment < item.segment_end; ++segment) {
    if (!SeesSegment(slice.window, slice.first_position, segment)) continue;
    const std::byte* const next = segment + 1 == item.segment_end
                                      ? next_keys
                                      : FirstKeys(step, arena, layer, item, segment + 1);
    for (uint32_t first = 0; first < item.rows; first += kAttentionRows) {
      const uint32_t rows = std::min(kAttentionRows, item.rows - first);
      if (scratch.positions[first + rows - 1] < segment * kSegmentTokens) continue;
      AttendTile(step, arena, layer, item, segment, first, rows, next, scratch, max.data(),
                 sum.data(), scratch.segment_out.floats());
      for (uint32_t r = 0; r < rows; ++r) {
        backend_.merge_segment(width, max[r], sum[r],
                               scratch.segment_out.floats() + size_t{r} * width,
                               &scratch.total_max[first + r], &scratch.total_sum[first + r],
                               scratch.total_out.floats() + size_t{first + r} * width);
      }
    }
  }
}

void Attention::Run(const Step& step, const kv::KvArena& arena, uint32_t layer,
                    const AttentionItem& item, const AttentionItem* following, uint32_t thread,
                    float* q) {
  Scratch& scratch = scratch_[thread];
  LoadQueries(step, item, scratch, q);
  const std::byte* const next_keys =
      following == nullptr ? nullptr
                           : FirstKeys(step, arena, layer, *following, following->segment_begin);
  const bool whole = item.partial == AttentionItem::kWhole;
  float* const max = whole ? scratch.total_max.data() : &partial_max_[item.partial];
  float* const sum = whole ? scratch.total_sum.data() : &partial_sum_[item.partial];
  float* const out =
      whole ? scratch.total_out.floats() : partial_out_.floats() + item.partial * layout_.head_dim;
  // A single segment, folded into nothing, would stay what it is.
  if (item.segment_end == item.segment_begin + 1 && item.rows <= kAttentionRows) {
    AttendTile(step, arena, layer, item, item.segment_begin, 0, item.rows, next_keys, scratch, max,
               sum, out);
  } else {
    FoldSegments(step, arena, layer, item, next_keys, scratch);
    if (!whole) {
      std::copy_n(scratch.total_max.begin(), item.rows, max);
      std::copy_n(scratch.total_sum.begin(), item.rows, sum);
      std::copy_n(scratch.total_out.floats(), size_t{item.rows} * layout_.head_dim, out);
    }
  }
  if (whole) StoreContext(step, item, scratch, q);
}

void Attention::Merge(const Step& step, const MergeItem& item, uint32_t thread, float* q) {
  Scratch& scratch = scratch_[thread];
  const uint32_t width = layout_.head_dim;
  ClearTotals(item.rows, width, scratch);
  for (const size_t part : item.parts) {
    for (uint32_t r = 0; r < item.rows; ++r) {
      backend_.merge_segment(width, partial_max_[part + r], partial_sum_[part + r],
                             partial_out_.floats() + (part + r) * width, &scratch.total_max[r],
                             &scratch.total_sum[r], scratch.total_out.floats() + size_t{r} * width);
    }
  }
  StoreContext(step, item, scratch, q);
}

template <typename Item>
void Attention::StoreContext(const Step& step, const Item& item, const Scratch& scratch,
                             float* q) const {
  for (uint32_t r = 0; r < item.rows; ++r) {
    const float scale = 1 / scratch.total_sum[r];
    const float* out = scratch.total_out.floats() + size_t{r} * layout_.head_dim;
    float* context = QueryRow(step, item, r, q);
    for (uint32_t d = 0; d < config_.head_dim; ++d) context[d] = out[d] * scale;
  }
}

}  // namespace baton::model
