// SPDX-License-Identifier: Apache-2.0
// All weights of a model as the executor reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/model/aligned_buffer.h"
#include "common/model/packed_matrix.h"
#include "common/model/thread_pool.h"

namespace baton::model {

// The embedding table as stored, copied so that neither the mapping nor the
// file has to outlive loading; rows become float32 on the fly.
class Embedding final {
 public:
  Embedding() = default;
  explicit Embedding(const checkpoint::TensorView& tensor);
  Embedding(Embedding&&) = default;
  Embedding& operator=(Embedding&&) = default;

  // Writes row `token`; out.size() == hidden.
  void Row(TokenId token, std::span<float> out) const;
  uint64_t bytes() const { return data_.size(); }

 private:
  std::vector<std::byte> data_;
  checkpoint::TensorView view_;  // of data_
};

struct PackedLayer {
  std::vector<float> attention_norm, ffn_norm;  // [hidden]
  PackedMatrix q, k, v, attention_out, gate, up, down;
};

struct PackedModel {
  AlignedBuffer memory;  // of all matrices: huge pages, one walk per token
  Embedding embedding;
  std::vector<PackedLayer> layers;
  std::vector<float> final_norm;  // [hidden]
  PackedMatrix head;
  uint64_t bytes = 0;  // of everything above
};

// Bytes that PackModel would take.
uint64_t PackedModelBytes(const checkpoint::ModelWeights& weights, const kernels::Backend& backend,
                          kernels::Precision precision);

// Packs with all threads of the pool; logs progress when it takes seconds.
PackedModel PackModel(const checkpoint::ModelWeights& weights, const kernels::Backend& backend,
                      kernels::Precision precision, ThreadPool& pool);

}  // namespace baton::model
