// SPDX-License-Identifier: Apache-2.0
#include "common/model/packed_model.h"

#include <atomic>
#include <chrono>

#include "common/base/log.h"

namespace baton::model {
namespace {

using checkpoint::LayerWeights;
using checkpoint::LinearView;
using checkpoint::ModelWeights;
using checkpoint::TensorView;

constexpr auto kProgressInterval = std::chrono::seconds(2);

// The matrices of a layer as stored and as packed, in one order.
struct MatrixPair {
  LinearView LayerWeights::*stored;
  PackedMatrix PackedLayer::*packed;
};
constexpr MatrixPair kMatrices[] = {{&LayerWeights::q, &PackedLayer::q},
                                    {&LayerWeights::k, &PackedLayer::k},
                                    {&LayerWeights::v, &PackedLayer::v},
                                    {&LayerWeights::attention_out, &PackedLayer::attention_out},
                                    {&LayerWeights::gate, &PackedLayer::gate},
                                    {&LayerWeights::up, &PackedLayer::up},
                                    {&LayerWeights::down, &PackedLayer::down}};

std::vector<float> AllValues(const TensorView& tensor) {
  uint64_t count = 1;
  for (uint64_t size : tensor.shape) count *= size;
  return Values(tensor, 0, count);
}

uint64_t MatrixBytes(const ModelWeights& weights, const kernels::Backend& backend,
                     kernels::Precision precision) {
  uint64_t bytes = PackedMatrix::PackedBytes(weights.head, backend, precision);
  for (const LayerWeights& layer : weights.layers) {
    for (const MatrixPair& matrix : kMatrices) {
      bytes += PackedMatrix::PackedBytes(layer.*matrix.stored, backend, precision);
    }
  }
  return bytes;
}

// Packs matrices one after another into `memory`, each by all threads.
class Packer {
 public:
  Packer(const kernels::Backend& backend, kernels::Precision precision, ThreadPool& pool,
         AlignedBuffer& memory)
      : backend_(backend), precision_(precision), pool_(pool), memory_(memory) {}

  PackedMatrix Pack(const LinearView& view) {
    PackedMatrix matrix(view, backend_, precision_, memory_.data() + done_bytes_);
    std::atomic<uint32_t> next{0};
    pool_.Run([&](uint32_t) {
      for (uint32_t p = next++; p < matrix.panels(); p = next++) matrix.PackPanel(view, p);
    });
    Progress(matrix.panel_bytes() * matrix.panels());
    return matrix;
  }

 private:
  void Progress(uint64_t bytes) {
    done_bytes_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (now - logged_ < kProgressInterval) return;
    logged_ = now;
    LogInfo("packing weights",
            {{"mib_done", done_bytes_ >> 20}, {"mib_all", memory_.size() >> 20}});
  }

  const kernels::Backend& backend_;
  const kernels::Precision precision_;
  ThreadPool& pool_;
  AlignedBuffer& memory_;
  uint64_t done_bytes_ = 0;
  std::chrono::steady_clock::time_point logged_ = std::chrono::steady_clock::now();
};

}  // namespace

Embedding::Embedding(const TensorView& tensor)
    : data_(tensor.data.begin(), tensor.data.end()), view_(tensor) {
  view_.data = data_;
}

void Embedding::Row(TokenId token, std::span<float> out) const {
  checkpoint::DequantizeRange(view_, uint64_t{token} * out.size(), out);
}

uint64_t PackedModelBytes(const ModelWeights& weights, const kernels::Backend& backend,
                          kernels::Precision precision) {
  return weights.embedding->data.size() + MatrixBytes(weights, backend, precision);
}

PackedModel PackModel(const ModelWeights& weights, const kernels::Backend& backend,
                      kernels::Precision precision, ThreadPool& pool) {
  PackedModel model;
  model.bytes = PackedModelBytes(weights, backend, precision);
  model.memory = AlignedBuffer(MatrixBytes(weights, backend, precision));
  Packer packer(backend, precision, pool, model.memory);
  model.embedding = Embedding(*weights.embedding);
  for (const LayerWeights& stored : weights.layers) {
    PackedLayer& layer = model.layers.emplace_back();
    layer.attention_norm = AllValues(*stored.attention_norm);
    layer.ffn_norm = AllValues(*stored.ffn_norm);
    for (const MatrixPair& matrix : kMatrices) {
      layer.*matrix.packed = packer.Pack(stored.*matrix.stored);
    }
  }
  model.final_norm = AllValues(*weights.final_norm);
  model.head = packer.Pack(weights.head);
  return model;
}

}  // namespace baton::model
