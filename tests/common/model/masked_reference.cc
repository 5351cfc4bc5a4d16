// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/masked_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace baton::model {
namespace {

constexpr size_t kBlock = 32;

}  // namespace

MaskedReference::Vector MaskedReference::Matrix::Times(const Vector& x) const {
  Vector y(rows.size() / inputs);
  for (size_t r = 0; r < y.size(); ++r) {
    const double* row = rows.data() + r * inputs;
    double sum = 0;
    for (size_t i = 0; i < inputs; ++i) sum += row[i] * x[i];
    y[r] = sum;
  }
  return y;
}

MaskedReference::Vector MaskedReference::Read(const checkpoint::TensorView& tensor, uint64_t begin,
                                              uint64_t count) {
  std::vector<float> values(count);
  checkpoint::DequantizeRange(tensor, begin, values);
  return {values.begin(), values.end()};
}

MaskedReference::Matrix MaskedReference::Read(const checkpoint::LinearView& view) {
  const uint64_t inputs = view.tensor->shape[1];
  return {inputs, Read(*view.tensor, view.row_begin * inputs, view.rows * inputs)};
}

MaskedReference::MaskedReference(const checkpoint::Checkpoint& checkpoint, Sight sight)
    : config_(checkpoint.config()), sight_(std::move(sight)) {
  const auto weights = checkpoint.Weights();
  if (!weights.ok()) {
    ADD_FAILURE() << weights.status();
    return;
  }
  embedding_ = Read({.tensor = weights->embedding, .rows = config_.vocabulary});
  head_ = Read(weights->head);
  final_norm_ = Read(*weights->final_norm, 0, config_.hidden);
  for (const checkpoint::LayerWeights& from : weights->layers) {
    Layer& layer = layers_.emplace_back();
    layer.attention_norm = Read(*from.attention_norm, 0, config_.hidden);
    layer.ffn_norm = Read(*from.ffn_norm, 0, config_.hidden);
    layer.q = Read(from.q);
    layer.k = Read(from.k);
    layer.v = Read(from.v);
    layer.attention_out = Read(from.attention_out);
    layer.gate = Read(from.gate);
    layer.up = Read(from.up);
    layer.down = Read(from.down);
  }
}

MaskedReference::Vector MaskedReference::Norm(const Vector& x, const Vector& weight) const {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double scale =
      1 / std::sqrt(squares / static_cast<double>(x.size()) + double{config_.norm_epsilon});
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void MaskedReference::Rotate(Vector& heads) const {
  const size_t dims = config_.rotary_dims, half = dims / 2;
  const bool pairs = config_.rope_style == checkpoint::RopeStyle::kAdjacentPairs;
  for (size_t start = 0; start < heads.size(); start += config_.head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position_) *
          std::pow(config_.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
      double& a = heads[start + (pairs ? 2 * i : i)];
      double& b = heads[start + (pairs ? 2 * i + 1 : i + half)];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = x * std::sin(angle) + y * std::cos(angle);
    }
  }
}

bool Sight::Sees(size_t position, size_t token) const {
  const size_t own_block = position / kBlock * kBlock;
  if (window == 0 || token < sinks || token + window >= own_block) return true;
  if (stride > 0 && token % stride >= stride - kBlock) return true;
  return std::any_of(keep.begin(), keep.end(), [token](const auto& range) {
    return token >= range.first && token < range.second;
  });
}

MaskedReference::Vector MaskedReference::Attend(const Layer& layer, const Vector& q) const {
  const size_t dim = config_.head_dim, group = config_.heads / config_.kv_heads;
  Vector out(q.size());
  for (size_t head = 0; head < config_.heads; ++head) {
    const double* query = q.data() + head * dim;
    const size_t at = head / group * dim;
    std::vector<std::pair<size_t, double>> scores;
    double max = -1e300;
    for (size_t t = 0; t <= position_; ++t) {
      if (!sight_.Sees(position_, t)) continue;
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += query[d] * layer.keys[t][at + d];
      scores.emplace_back(t, score / std::sqrt(static_cast<double>(dim)));
      max = std::max(max, scores.back().second);
    }
    double sum = 0;
    for (auto& [t, score] : scores) {
      double weight = std::exp(score - max);
      if (weight_) {
        const auto index = static_cast<size_t>(&layer - layers_.data());
        weight *= weight_(index, head, position_, t);
      }
      sum += weight;
      for (size_t d = 0; d < dim; ++d) out[head * dim + d] += weight * layer.values[t][at + d];
    }
    for (size_t d = 0; d < dim; ++d) out[head * dim + d] /= sum;
  }
  return out;
}

std::vector<double> MaskedReference::Next(TokenId token) {
  Vector x(embedding_.rows.begin() + token * config_.hidden,
           embedding_.rows.begin() + (token + 1) * config_.hidden);
  const auto add = [&x](const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  };
  for (Layer& layer : layers_) {
    const Vector normal = Norm(x, layer.attention_norm);
    Vector q = layer.q.Times(normal), k = layer.k.Times(normal);
    Rotate(q);
    Rotate(k);
    layer.keys.push_back(std::move(k));
    layer.values.push_back(layer.v.Times(normal));
    add(layer.attention_out.Times(Attend(layer, q)));
    const Vector ffn_in = Norm(x, layer.ffn_norm);
    Vector gate = layer.gate.Times(ffn_in);
    const Vector up = layer.up.Times(ffn_in);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    add(layer.down.Times(gate));
  }
  ++position_;
  return head_.Times(Norm(x, final_norm_));
}

}  // namespace baton::model
