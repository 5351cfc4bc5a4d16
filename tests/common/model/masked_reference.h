// SPDX-License-Identifier: Apache-2.0
// A Llama in plain float64 loops that keeps the KV of every position and masks
// what a window does not see: the oracle for windows.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/types.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::model {

class MaskedReference final {
 public:
  // Sees token t at position p when t < sinks, or t lies in p's block of 32 or
  // in the `window` tokens before that block; window 0: all.
  MaskedReference(const checkpoint::Checkpoint& checkpoint, uint32_t window, uint32_t sinks);

  // Logits after `token` at the next position.
  std::vector<double> Next(TokenId token);

 private:
  using Vector = std::vector<double>;
  struct Matrix {
    size_t inputs = 0;
    Vector rows;
    Vector Times(const Vector& x) const;
  };
  struct Layer {
    Vector attention_norm, ffn_norm;
    Matrix q, k, v, attention_out, gate, up, down;
    std::vector<Vector> keys, values;  // [position]: all KV heads
  };

  static Vector Read(const checkpoint::TensorView& tensor, uint64_t begin, uint64_t count);
  static Matrix Read(const checkpoint::LinearView& view);
  Vector Norm(const Vector& x, const Vector& weight) const;
  void Rotate(Vector& heads) const;
  bool Sees(size_t token) const;
  Vector Attend(const Layer& layer, const Vector& q) const;

  const checkpoint::ModelConfig config_;
  const uint32_t window_, sinks_;
  Matrix embedding_, head_;
  Vector final_norm_;
  std::vector<Layer> layers_;
  size_t position_ = 0;
};

}  // namespace baton::model
