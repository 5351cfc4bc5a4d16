// SPDX-License-Identifier: Apache-2.0
#include "common/model/step_runner.h"

#include <cstring>

namespace baton::model {
namespace {

using kernels::kSegmentTokens;
using kernels::RowTiles;

// With fewer items per thread, one that waits for its thread makes another idle.
constexpr uint32_t kItemsToTakeAhead = 16;

}  // namespace

StepRunner::StepRunner(StepContext& context, uint32_t thread)
    : context_(context),
      step_(context.step),
      work_(context.work),
      thread_(thread),
      threads_(context.pool.active()),
      tiles_{0, context.step.tiles.count()} {}

bool StepRunner::OwnCopy(const RowTiles& tiles) const { return tiles.count() == 1 && threads_ > 1; }

Range StepRunner::PreparedTiles() const {
  if (step_.by_rows || OwnCopy(step_.tiles)) return tiles_;
  return Part(tiles_.size(), thread_, threads_);
}

Range StepRunner::Panels(uint32_t count) const {
  return step_.by_rows ? Range{0, count} : Part(count, thread_, threads_);
}

Range StepRunner::OwnRows() const {
  if (!step_.by_rows) return Part(static_cast<uint32_t>(step_.rows.size()), thread_, threads_);
  return {step_.tiles.begin(tiles_.begin), step_.tiles.begin(tiles_.end)};
}

uint32_t StepRunner::Slot(const RowTiles& tiles, uint32_t tile) const {
  return OwnCopy(tiles) ? work_.tiles + thread_ : tile;
}

void StepRunner::WaitForPrepared() {
  if (!step_.by_rows && !OwnCopy(step_.tiles)) context_.pool.Barrier();
}

void StepRunner::WaitUnlessByRows() {
  if (!step_.by_rows) context_.pool.Barrier();
}

void StepRunner::Run() {
  if (step_.by_rows) return RunLayers(0, static_cast<uint32_t>(context_.model.layers.size()));
  Begin();
  RunByPanels();
  End();
}

void StepRunner::Begin() {
  if (thread_ == 0 && context_.profile != nullptr) context_.profile->Begin();
  ZeroFreshBlocks();
}

void StepRunner::End() {
  if (step_.logit_rows.empty()) return;
  Head();
  Mark(StepPart::kHead);
}

void StepRunner::RunLayers(uint32_t begin, uint32_t end) {
  const auto layers = static_cast<uint32_t>(context_.model.layers.size());
  if (begin == 0) Begin();
  for (uint32_t layer = begin; layer < end; ++layer) {
    ForEachChunk(layer, [&] {
      if (layer == 0) {
        Embed();
        Mark(StepPart::kEmbed);
      } else {
        AfterAttention(layer - 1);
      }
      BeforeAttention(layer);
    });
    context_.pool.Barrier();
    if (thread_ == 0 && context_.layer_done) context_.layer_done(layer);
    Mark(StepPart::kAppend);
    Attend(layer);
    Mark(StepPart::kAttention);
  }
  if (end < layers) return;
  ForEachChunk(layers, [&] { AfterAttention(layers - 1); });
  context_.pool.Barrier();
  Mark(StepPart::kDown);
  End();
}

void StepRunner::RunByPanels() {
  const auto layers = static_cast<uint32_t>(context_.model.layers.size());
  Embed();
  Mark(StepPart::kEmbed);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    BeforeAttention(layer);
    const auto appended = [&] {
      if (thread_ == 0 && context_.layer_done) context_.layer_done(layer);
    };
    if (!step_.items_append) {
      context_.pool.Barrier();
      appended();
    }
    Mark(StepPart::kAppend);
    Attend(layer);
    if (step_.items_append) appended();
    Mark(StepPart::kAttention);
    AfterAttention(layer);
  }
}

template <typename Function>
void StepRunner::ForEachChunk(uint32_t pass, const Function& function) {
  const auto chunks = static_cast<uint32_t>(context_.passes.size());
  const Range own = Part(chunks, thread_, threads_);
  for (uint32_t i = 0; i < chunks; ++i) {
    // Those of the next threads from their ends, which they come to last.
    const uint32_t chunk =
        i < own.size() ? own.begin + i : (own.begin + chunks - 1 - (i - own.size())) % chunks;
    uint32_t begun = pass;
    if (!context_.passes[chunk].compare_exchange_strong(begun, pass + 1,
                                                        std::memory_order_relaxed)) {
      continue;
    }
    tiles_ = Part(step_.tiles.count(), chunk, chunks);
    function();
  }
}

void StepRunner::ZeroFreshBlocks() {
  if (step_.fresh_blocks.empty()) return;
  const auto layers = static_cast<uint32_t>(context_.model.layers.size());
  const auto count = static_cast<uint32_t>(step_.fresh_blocks.size()) * layers;
  const Range part = Part(count, thread_, threads_);
  for (uint32_t i = part.begin; i < part.end; ++i) {
    const std::span<std::byte> span =
        context_.arena.LayerSpan(step_.fresh_blocks[i / layers], i % layers);
    std::memset(span.data(), 0, span.size());
  }
  if (step_.by_rows) context_.pool.Barrier();  // otherwise Embed waits
}

void StepRunner::Embed() {
  const Range part = OwnRows();
  for (uint32_t row = part.begin; row < part.end; ++row) {
    context_.model.embedding.Row(step_.rows[row].token, {x(row), context_.config.hidden});
  }
  WaitUnlessByRows();
}

void StepRunner::BeforeAttention(uint32_t layer) {
  const PackedLayer& weights = context_.model.layers[layer];
  NormAndPack(weights.attention_norm, work_.layer_formats[layer].attention_in, step_.tiles,
              PreparedTiles(), {}, work_.attention_in);
  WaitForPrepared();
  Mark(StepPart::kNorm);
  Project(weights);
  Mark(StepPart::kQkv);
  AppendKv(layer);
  Mark(StepPart::kAppend);
}

void StepRunner::AfterAttention(uint32_t layer) {
  const PackedLayer& weights = context_.model.layers[layer];
  const LayerFormats& formats = work_.layer_formats[layer];
  AttentionOut(weights, formats.attention_out);
  Mark(StepPart::kAttentionOut);
  NormAndPack(weights.ffn_norm, formats.ffn_in, step_.tiles, PreparedTiles(), {}, work_.ffn_in);
  WaitForPrepared();
  Mark(StepPart::kNorm);
  GateAndUp(weights, formats);
  Mark(StepPart::kGateUp);
  MultiplyAddToX(weights.down, work_.ffn_out, false, FirstPanelAfter(layer));
  WaitUnlessByRows();
  Mark(StepPart::kDown);
}

void StepRunner::NormAndPack(std::span<const float> weight, const FormatSet& formats,
                             const RowTiles& tiles, const Range& part,
                             std::span<const uint32_t> rows, PreparedRows& out) {
  float* normalized = work_.normalized[thread_].floats();
  const uint32_t hidden = context_.config.hidden;
  for (uint32_t tile = part.begin; tile < part.end; ++tile) {
    for (uint32_t r = 0; r < tiles.size(tile); ++r) {
      const uint32_t index = tiles.begin(tile) + r;
      const float* row = x(rows.empty() ? index : rows[index]);
      context_.backend.rms_norm({row, hidden}, weight, context_.config.norm_epsilon,
                                {normalized + size_t{r} * work_.hidden_width, hidden});
    }
    out.PackTile(formats, Slot(tiles, tile), tiles.size(tile), normalized, work_.hidden_width,
                 hidden);
  }
}

void StepRunner::AppendKv(uint32_t layer) {
  if (step_.items_append) return;
  const Range part = OwnRows();
  for (uint32_t row = part.begin; row < part.end; ++row) {
    AppendHeads(layer, row, 0, context_.config.kv_heads);
  }
}

void StepRunner::AppendHeads(uint32_t layer, uint32_t row, uint32_t begin, uint32_t end) {
  const size_t width = size_t{context_.config.kv_heads} * context_.config.head_dim;
  context_.attention.Append(step_, context_.arena, layer, row, begin, end, thread_,
                            work_.k.floats() + row * width, work_.v.floats() + row * width);
}

void StepRunner::RunItem(uint32_t layer, const AttentionItem& item,
                         const AttentionItem* following) {
  const uint32_t row = step_.first_row[item.slice];
  if (step_.items_append && step_.rows[row].position / kSegmentTokens < item.segment_end) {
    AppendHeads(layer, row, item.kv_head, item.kv_head + 1);
  }
  context_.attention.Run(step_, context_.arena, layer, item, following, thread_, work_.q.floats());
}

void StepRunner::Attend(uint32_t layer) {
  const uint32_t turn = layer % 2;
  if (thread_ == 0) {
    context_.next_item[1 - turn].store(0, std::memory_order_relaxed);
    context_.next_merge[1 - turn].store(0, std::memory_order_relaxed);
  }
  float* q = work_.q.floats();
  const auto next = [](std::atomic<uint32_t>& counter) {
    return counter.fetch_add(1, std::memory_order_relaxed);
  };
  const std::vector<AttentionItem>& items = step_.attention;
  // Of many, one is taken ahead: what it begins with comes in beside the one before.
  const bool ahead = items.size() >= size_t{kItemsToTakeAhead} * threads_;
  for (uint32_t i = next(context_.next_item[turn]); i < items.size();) {
    const uint32_t following = ahead ? next(context_.next_item[turn]) : 0;
    RunItem(layer, items[i], ahead && following < items.size() ? &items[following] : nullptr);
    i = ahead ? following : next(context_.next_item[turn]);
  }
  context_.pool.Barrier();
  if (step_.merges.empty()) return;
  for (uint32_t i = next(context_.next_merge[turn]); i < step_.merges.size();
       i = next(context_.next_merge[turn])) {
    context_.attention.Merge(step_, step_.merges[i], thread_, q);
  }
  context_.pool.Barrier();
}

void StepRunner::AttentionOut(const PackedLayer& layer, const FormatSet& formats) {
  const size_t width = layer.attention_out.inputs();
  const RowTiles& tiles = step_.tiles;
  const Range part = PreparedTiles();
  for (uint32_t tile = part.begin; tile < part.end; ++tile) {
    work_.attention_out.PackTile(formats, Slot(tiles, tile), tiles.size(tile),
                                 work_.q.floats() + tiles.begin(tile) * width, width,
                                 static_cast<uint32_t>(width));
  }
  WaitForPrepared();
  MultiplyAddToX(layer.attention_out, work_.attention_out, OwnCopy(tiles), FirstPanel(layer.up));
  WaitUnlessByRows();
}

}  // namespace baton::model
