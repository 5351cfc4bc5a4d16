// SPDX-License-Identifier: Apache-2.0
#include "common/model/step_runner.h"

#include <algorithm>
#include <cstring>

#include "common/model/fetch.h"

namespace baton::model {
namespace {

using kernels::kPanelOutputs;
using kernels::kSegmentTokens;
using kernels::kTileRows;
using kernels::RowTiles;

// With fewer items per thread, one that waits for its thread makes another idle.
constexpr uint32_t kItemsToTakeAhead = 16;

// What tile `index` of `count` prefetches of the panel that comes next.
Panel PartOf(const Panel& panel, uint32_t index, uint32_t count) {
  const size_t share = (panel.bytes / count + kCacheLine - 1) / kCacheLine * kCacheLine;
  const size_t begin = std::min(share * index, panel.bytes);
  return {panel.data + begin, std::min(share, panel.bytes - begin)};
}

// Panel `index` of `matrix`; beyond `end`, `after`.
Panel PanelOr(const PackedMatrix& matrix, uint32_t index, uint32_t end, const Panel& after) {
  return index < end ? Panel{matrix.panel(index), matrix.panel_bytes()} : after;
}

// With one tile a matrix is read as a stream, once: a fetch some way ahead keeps
// more lines on their way than the CPU's own prefetching does, while the whole
// next panel would throw what it brought out of the L1 cache. Beside the last
// panel before `end`: the first lines of `after`.
Panel InStream(const PackedMatrix& matrix, uint32_t panel, uint32_t end, const Panel& after) {
  constexpr size_t kAhead = 6400, kStart = 2048;
  if (panel + 1 == end) return {after.data, std::min(after.bytes, kStart)};
  return {matrix.panel(panel) + kAhead, matrix.panel_bytes()};
}

// Whole rows of a panel without a call.
void CopyPanelRow(const float* from, uint32_t columns, float* to) {
  if (columns == kPanelOutputs) {
    std::memcpy(to, from, kPanelOutputs * sizeof(float));
  } else {
    std::copy_n(from, columns, to);
  }
}

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

Panel StepRunner::FirstPanel(const PackedMatrix& matrix) const {
  return {matrix.panel(Panels(matrix.panels()).begin), matrix.panel_bytes()};
}

// The head is split by panels in every step.
Panel StepRunner::FirstPanelAfter(uint32_t layer) const {
  if (layer + 1 < context_.model.layers.size()) {
    return FirstPanel(context_.model.layers[layer + 1].q);
  }
  const PackedMatrix& head = context_.model.head;
  if (step_.logit_rows.empty()) return {};
  return {head.panel(Part(head.panels(), thread_, threads_).begin), head.panel_bytes()};
}

void StepRunner::FetchRows(const RowsOut& to, uint32_t tile, uint32_t panel) const {
  const float* row = to.data + step_.tiles.begin(tile) * to.stride + panel * kPanelOutputs;
  for (uint32_t r = 0; r < step_.tiles.size(tile); ++r, row += to.stride) {
    FetchToWrite(row);
    FetchToWrite(row + kCacheLineFloats);
  }
}

template <typename Epilogue>
void StepRunner::Multiply(const PackedMatrix& matrix, const PreparedRows& in, bool own_copy,
                          const Panel& after, const RowsOut& to, const Epilogue& epilogue) {
  alignas(kCacheLine) float out[kTileRows * kPanelOutputs];
  const kernels::LinearFormat& format = matrix.format();
  const Range panels = Panels(matrix.panels());
  for (uint32_t panel = panels.begin; panel < panels.end; ++panel) {
    const Panel following = PanelOr(matrix, panel + 1, panels.end, after);
    for (uint32_t tile = tiles_.begin; tile < tiles_.end; ++tile) {
      const Panel next = tiles_.size() == 1 ? InStream(matrix, panel, panels.end, after)
                                            : PartOf(following, tile - tiles_.begin, tiles_.size());
      FetchRows(to, tile, panel);
      format.Multiply(matrix.panel(panel), matrix.inputs(),
                      in.tile(format.activation(), own_copy ? work_.tiles + thread_ : tile),
                      step_.tiles.size(tile), out, next.data, next.bytes);
      epilogue(tile, panel, out);
    }
  }
}

void StepRunner::MultiplyInto(const PackedMatrix& matrix, const PreparedRows& in,
                              const Panel& after, float* out) {
  const bool own_copy = OwnCopy(step_.tiles);
  const RowsOut to{out, matrix.outputs()};
  const auto store = [&](uint32_t tile, uint32_t panel, const float* result) {
    const uint32_t columns = matrix.columns(panel), first = panel * kPanelOutputs;
    for (uint32_t r = 0; r < step_.tiles.size(tile); ++r) {
      float* row = out + size_t{step_.tiles.begin(tile) + r} * matrix.outputs() + first;
      CopyPanelRow(result + r * kPanelOutputs, columns, row);
      if (!matrix.bias().empty()) {
        context_.backend.add({row, columns}, {matrix.bias().data() + first, columns});
      }
    }
  };
  Multiply(matrix, in, own_copy, after, to, store);
}

void StepRunner::MultiplyAddToX(const PackedMatrix& matrix, const PreparedRows& in, bool own_copy,
                                const Panel& after) {
  const RowsOut to{work_.x.floats(), work_.hidden_width};
  const auto add = [&](uint32_t tile, uint32_t panel, const float* result) {
    context_.backend.add_tile(x(step_.tiles.begin(tile)) + panel * kPanelOutputs,
                              work_.hidden_width, result, step_.tiles.size(tile),
                              matrix.columns(panel));
  };
  Multiply(matrix, in, own_copy, after, to, add);
}

void StepRunner::Project(const PackedLayer& layer) {
  MultiplyInto(layer.q, work_.attention_in, FirstPanel(layer.k), work_.q.floats());
  MultiplyInto(layer.k, work_.attention_in, FirstPanel(layer.v), work_.k.floats());
  MultiplyInto(layer.v, work_.attention_in, FirstPanel(layer.attention_out), work_.v.floats());
  WaitUnlessByRows();
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

// Every up panel is followed by the gate panel of the same columns, and both
// become a group of the down projection's input while they are in the cache.
void StepRunner::GateAndUp(const PackedLayer& layer, const LayerFormats& formats) {
  alignas(kCacheLine) float gate[kTileRows * kPanelOutputs], up[kTileRows * kPanelOutputs];
  const kernels::LinearFormat &gate_format = layer.gate.format(), &up_format = layer.up.format();
  const Range panels = Panels(layer.up.panels());
  for (uint32_t panel = panels.begin; panel < panels.end; ++panel) {
    const Panel following = PanelOr(layer.up, panel + 1, panels.end, FirstPanel(layer.down));
    for (uint32_t tile = tiles_.begin; tile < tiles_.end; ++tile) {
      const uint32_t rows = step_.tiles.size(tile), slot = Slot(step_.tiles, tile);
      const uint32_t index = tile - tiles_.begin;
      Panel next;  // the first of several tiles brings in the whole gate panel
      if (tiles_.size() == 1) {
        next = InStream(layer.up, panel, panels.end + 1, {});
      } else if (index == 0) {
        next = {layer.gate.panel(panel), layer.gate.panel_bytes()};
      }
      up_format.Multiply(layer.up.panel(panel), layer.up.inputs(),
                         work_.ffn_in.tile(up_format.activation(), slot), rows, up, next.data,
                         next.bytes);
      next = tiles_.size() == 1 ? InStream(layer.gate, panel, panels.end, FirstPanel(layer.down))
                                : PartOf(following, index, tiles_.size());
      gate_format.Multiply(layer.gate.panel(panel), layer.gate.inputs(),
                           work_.ffn_in.tile(gate_format.activation(), slot), rows, gate, next.data,
                           next.bytes);
      const size_t values = size_t{rows} * kPanelOutputs;
      context_.backend.swiglu({gate, values}, {up, values}, {up, values});
      work_.ffn_out.PackGroup(formats.ffn_out, tile, rows, panel, up, kPanelOutputs);
      if (panel + 1 == layer.up.panels()) {
        work_.ffn_out.PackZeros(formats.ffn_out, tile, rows, panel + 1);
      }
    }
  }
  WaitUnlessByRows();
}

void StepRunner::Head() {
  const RowTiles tiles(static_cast<uint32_t>(step_.logit_rows.size()));
  const PackedMatrix& head = context_.model.head;
  const Range part = OwnCopy(tiles) ? Range{0, 1} : Part(tiles.count(), thread_, threads_);
  NormAndPack(context_.model.final_norm, work_.head_format, tiles, part, step_.logit_rows,
              work_.head_in);
  if (!OwnCopy(tiles)) context_.pool.Barrier();
  alignas(kCacheLine) float out[kTileRows * kPanelOutputs];
  const kernels::LinearFormat& format = head.format();
  const Range panels = Part(head.panels(), thread_, threads_);
  for (uint32_t panel = panels.begin; panel < panels.end; ++panel) {
    const Panel following = PanelOr(head, panel + 1, panels.end, {});
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
      const Panel next = tiles.count() == 1 ? InStream(head, panel, panels.end, {})
                                            : PartOf(following, tile, tiles.count());
      format.Multiply(head.panel(panel), head.inputs(),
                      work_.head_in.tile(format.activation(), Slot(tiles, tile)), tiles.size(tile),
                      out, next.data, next.bytes);
      for (uint32_t r = 0; r < tiles.size(tile); ++r) {
        CopyPanelRow(out + r * kPanelOutputs, head.columns(panel),
                     context_.logits.data() + size_t{tiles.begin(tile) + r} * head.outputs() +
                         panel * kPanelOutputs);
      }
    }
  }
}

}  // namespace baton::model
