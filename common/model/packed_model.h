// SPDX-License-Identifier: Apache-2.0
// All weights of a model as the executor reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/packed_cache.h"
#include "common/model/packed_matrix.h"
#include "common/model/thread_pool.h"

namespace baton::model {

// The embedding table as the checkpoint stores it; rows become float32 on the
// fly.
class Embedding final {
 public:
  Embedding() = default;
  // `data` is a copy of the tensor's bytes that outlives this.
  Embedding(const checkpoint::TensorView& tensor, std::span<const std::byte> data);

  // Writes row `token`; out.size() == hidden.
  void Row(TokenId token, std::span<float> out) const;

 private:
  checkpoint::TensorView view_;
};

struct PackedLayer {
  std::vector<float> attention_norm, ffn_norm;  // [hidden]
  PackedMatrix q, k, v, attention_out, gate, up, down;
};

enum class WeightSource : uint8_t {
  kMemory,     // packed into memory of this process
  kNewFile,    // packed into the cache and mapped from there
  kFoundFile,  // mapped from the cache
};

struct PackedModel {
  // Of the embedding and all matrices: of this process, in huge pages, or a
  // mapped file that others share. Neither checkpoint nor cache has to outlive it.
  std::shared_ptr<const std::byte> memory;
  Embedding embedding;
  std::vector<PackedLayer> layers;
  std::vector<float> final_norm;  // [hidden]
  PackedMatrix head;
  uint64_t bytes = 0;  // of `memory`
  WeightSource source = WeightSource::kMemory;
};

// Bytes that PackModel would take.
uint64_t PackedModelBytes(const checkpoint::ModelWeights& weights, const kernels::Backend& backend,
                          kernels::Precision precision);

// Maps the weights from the cache, or packs them, into the cache or, when that
// cannot be (the reason is logged), into memory: with all threads of the pool,
// and with one matrix of the checkpoint in memory at a time. Logs progress when
// it takes seconds.
PackedModel PackModel(const checkpoint::Checkpoint& checkpoint,
                      const checkpoint::ModelWeights& weights, const kernels::Backend& backend,
                      kernels::Precision precision, const PackedCacheOptions& cache,
                      ThreadPool& pool);

}  // namespace baton::model
