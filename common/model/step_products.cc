// SPDX-License-Identifier: Apache-2.0
// The matrix products of a step, panel by panel.
#include <algorithm>
#include <cstring>

#include "common/model/fetch.h"
#include "common/model/step_runner.h"

namespace baton::model {
namespace {

using kernels::kPanelOutputs;
using kernels::kTileRows;
using kernels::RowTiles;

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
