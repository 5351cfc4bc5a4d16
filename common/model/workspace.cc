// SPDX-License-Identifier: Apache-2.0
#include "common/model/workspace.h"

namespace baton::model {
namespace {

std::vector<LayerFormats> FormatsOfLayers(const PackedModel& model) {
  std::vector<LayerFormats> formats;
  for (const PackedLayer& layer : model.layers) {
    formats.push_back({.attention_in = FormatsOf({&layer.q, &layer.k, &layer.v}),
                       .attention_out = FormatsOf({&layer.attention_out}),
                       .ffn_in = FormatsOf({&layer.gate, &layer.up}),
                       .ffn_out = FormatsOf({&layer.down})});
  }
  return formats;
}

FormatSet Union(const std::vector<LayerFormats>& layers, FormatSet LayerFormats::*member) {
  FormatSet all;
  for (const LayerFormats& layer : layers) AddFormats(all, layer.*member);
  return all;
}

AlignedBuffer Floats(uint64_t count) { return AlignedBuffer(count * sizeof(float)); }

}  // namespace

Workspace::Workspace(const checkpoint::ModelConfig& config, const PackedModel& model,
                     uint32_t max_rows, uint32_t threads)
    : tiles(kernels::RowTiles(max_rows).count()),
      hidden_width((config.hidden + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats),
      x(Floats(uint64_t{max_rows} * hidden_width)),
      q(Floats(uint64_t{max_rows} * config.heads * config.head_dim)),
      k(Floats(uint64_t{max_rows} * config.kv_heads * config.head_dim)),
      v(Floats(uint64_t{max_rows} * config.kv_heads * config.head_dim)),
      layer_formats(FormatsOfLayers(model)),
      head_format(FormatsOf({&model.head})),
      attention_in(Union(layer_formats, &LayerFormats::attention_in), config.hidden,
                   tiles + threads),
      attention_out(Union(layer_formats, &LayerFormats::attention_out),
                    config.heads * config.head_dim, tiles + threads),
      ffn_in(Union(layer_formats, &LayerFormats::ffn_in), config.hidden, tiles + threads),
      ffn_out(Union(layer_formats, &LayerFormats::ffn_out), config.ffn, tiles),
      head_in(head_format, config.hidden, tiles + threads) {
  for (uint32_t i = 0; i < threads; ++i) {
    normalized.push_back(Floats(uint64_t{kernels::kTileRows} * hidden_width));
  }
}

uint64_t Workspace::bytes() const {
  return x.size() + q.size() + k.size() + v.size() + attention_in.bytes() + attention_out.bytes() +
         ffn_in.bytes() + ffn_out.bytes() + head_in.bytes();
}

}  // namespace baton::model
