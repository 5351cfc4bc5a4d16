// SPDX-License-Identifier: Apache-2.0
// Products of prompts by the vendor's matrix library (--deterministic=false).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/model/gpu/device.h"
#include "common/model/gpu/weights.h"

namespace baton::model::gpu {

// Weights are held for our own kernels; here a matrix is written out as plain
// rows of bf16 for each product. That takes a pass over its bytes, which many
// rows are worth. Thread safety: none; work is started on the device's stream.
class VendorProducts final {
 public:
  // UNAVAILABLE names the library that is not there; RESOURCE_EXHAUSTED: no room
  // for the largest matrix of a layer.
  static absl::StatusOr<std::unique_ptr<VendorProducts>> Open(const Device& device,
                                                              const Weights& weights);

  // What one takes of the device for steps of at most `tokens`.
  static uint64_t BytesFor(const checkpoint::ModelConfig& config, uint32_t tokens);

  const std::string& library() const { return library_; }  // with its version
  // Whether a step of so many rows is computed by it.
  bool Serves(size_t rows) const { return rows >= device_.table().gemm_rows; }

  // Room for a step of so many rows.
  absl::Status Prepare(uint32_t rows);
  // As dev::Linear with `in` as plain rows; SwiGLU's results are plain rows too.
  // REQUIRES: Prepare was told of as many rows.
  void Multiply(const Matrix& matrix, dev::Epilogue epilogue, const void* in, void* out,
                uint32_t stride, uint32_t rows);
  // Activations (fragments.h) as plain rows, until the next call.
  const void* Plain(const void* activations, uint32_t rows, uint32_t inputs);

 private:
  // Of a model's layers, in values.
  struct Sizes {
    size_t weights = 0;    // of the largest matrix
    uint32_t swiglu = 0;   // outputs of gate_up
    uint32_t context = 0;  // inputs of attention_out
  };

  VendorProducts(const Device& device, std::string library, Sizes sizes, Buffer weights)
      : device_(device),
        library_(std::move(library)),
        sizes_(sizes),
        weights_(std::move(weights)) {}

  const Device& device_;
  const std::string library_;
  const Sizes sizes_;
  const Buffer weights_;     // bf16: the matrix at hand
  Buffer products_, plain_;  // float32 before SwiGLU; bf16 rows
};

}  // namespace baton::model::gpu
