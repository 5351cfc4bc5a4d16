// SPDX-License-Identifier: Apache-2.0
// A Llama in plain float64 loops that keeps the KV of every position and masks
// what is not to be seen: the oracle for windows.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/types.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::model {

// What is seen, token by token. Token t at position p is, when t < sinks, when t lies
// in p's block of 32 or in the `window` tokens before that block, when it is one of
// the last 32 of its `stride` tokens, or of a range [first, second); window 0: all.
struct Sight {
  size_t window = 0, sinks = 0, stride = 0;
  std::vector<std::pair<size_t, size_t>> keep = {};

  bool Sees(size_t position, size_t token) const;
};

class MaskedReference final {
 public:
  MaskedReference(const checkpoint::Checkpoint& checkpoint, Sight sight);

  // What the weight of a token is multiplied with before weights are normalized; by
  // default with 1.
  using Weight = std::function<double(size_t layer, size_t head, size_t position, size_t token)>;
  void SetWeight(Weight weight) { weight_ = std::move(weight); }

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
  Vector Attend(const Layer& layer, const Vector& q) const;

  const checkpoint::ModelConfig config_;
  const Sight sight_;
  Weight weight_;
  Matrix embedding_, head_;
  Vector final_norm_;
  std::vector<Layer> layers_;
  size_t position_ = 0;
};

}  // namespace baton::model
