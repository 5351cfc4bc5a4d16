// SPDX-License-Identifier: Apache-2.0
#include "tests/common/sampling/reference_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton::sampling {
namespace {

void Normalize(std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
}

// Logits after penalties, bias and bans. In float, as the sampler does: the
// order of near-equal logits counts.
std::vector<double> Edited(std::span<const float> logits, const Position& position,
                           const Params& params) {
  std::vector<float> scores(logits.begin(), logits.end());
  const auto output =
      position.tokens.last(std::min<size_t>(position.output_index, position.tokens.size()));
  for (TokenId id = 0; id < scores.size(); ++id) {
    float& score = scores[id];
    if (std::count(position.tokens.begin(), position.tokens.end(), id) > 0) {
      score = score > 0 ? score / params.repetition_penalty : score * params.repetition_penalty;
    }
    const auto times = std::count(output.begin(), output.end(), id);
    if (times > 0) score -= params.presence_penalty;
    score -= params.frequency_penalty * static_cast<float>(times);
  }
  for (const auto& [id, bias] : params.logit_bias) scores[id] += bias;
  for (const auto& sequence : params.bad_sequences) {
    std::vector<TokenId> end(position.tokens.begin(), position.tokens.end());
    end.push_back(sequence.back());
    if (end.size() >= sequence.size() &&
        std::equal(sequence.rbegin(), sequence.rend(), end.rbegin())) {
      scores[sequence.back()] = -1e30f;
    }
  }
  if (position.output_index < params.min_tokens) {
    for (TokenId id : position.end_tokens) scores[id] = -1e30f;
  }
  return {scores.begin(), scores.end()};
}

// Keeps the first entries of `order`, whose weights are given in that order,
// that reach `share` of the mass.
void KeepShare(double share, std::vector<TokenId>& order, std::vector<double>& weights,
               double& margin) {
  if (share >= 1) return;
  double sum = 0;
  size_t count = 0;
  while (count < weights.size() && sum < share) {
    sum += weights[count++];
    margin = std::min(margin, std::abs(sum - share));
  }
  order.resize(count);
  weights.resize(count);
  Normalize(weights);
}

void KeepMinP(double share, std::vector<TokenId>& order, std::vector<double>& weights,
              double& margin) {
  if (share <= 0) return;
  size_t count = 0;
  for (; count < weights.size(); ++count) {
    const double ratio = weights[count] / weights[0] / share;
    margin = std::min(margin, std::abs(ratio - 1));
    if (ratio < 1) break;
  }
  order.resize(count);
  weights.resize(count);
  Normalize(weights);
}

void KeepTypical(double share, std::vector<TokenId>& order, std::vector<double>& weights,
                 double& margin) {
  if (share >= 1) return;
  double entropy = 0;
  for (double p : weights) entropy -= p > 0 ? p * std::log(p) : 0;
  std::vector<size_t> by_typicality(order.size());
  std::iota(by_typicality.begin(), by_typicality.end(), 0);
  const auto distance = [&](size_t i) { return std::abs(-std::log(weights[i]) - entropy); };
  std::sort(by_typicality.begin(), by_typicality.end(), [&](size_t a, size_t b) {
    return std::pair(distance(a), order[a]) < std::pair(distance(b), order[b]);
  });
  std::vector<TokenId> new_order;
  std::vector<double> new_weights;
  for (size_t i : by_typicality) {
    new_order.push_back(order[i]);
    new_weights.push_back(weights[i]);
  }
  // Neighbours in this order that a rounding error could swap. They matter
  // where the mass is cut.
  double sum = 0;
  size_t cut = 0;
  while (cut < new_weights.size() && sum < share) sum += new_weights[cut++];
  const size_t first = cut > 3 ? cut - 3 : 0;
  for (size_t i = first; i + 1 < std::min(cut + 2, by_typicality.size()); ++i) {
    const double gap = distance(by_typicality[i + 1]) - distance(by_typicality[i]);
    margin = std::min(margin, gap / 10);
  }
  order = new_order;
  weights = new_weights;
  KeepShare(share, order, weights, margin);
}

}  // namespace

ReferenceResult SampleByReference(std::span<const float> logits, const Position& position,
                                  double uniform, const Params& params) {
  const std::vector<double> scores = Edited(logits, position, params);
  std::vector<TokenId> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return scores[a] > scores[b]; });
  ReferenceResult result;
  if (params.temperature == 0) {
    result.token = order[0];
    return result;
  }
  if (params.top_k > 0 && params.top_k < order.size()) order.resize(params.top_k);
  std::vector<double> weights;
  for (TokenId token : order) {
    weights.push_back(std::exp((scores[token] - scores[order[0]]) / params.temperature));
  }
  Normalize(weights);
  KeepShare(params.top_p, order, weights, result.margin);
  KeepMinP(params.min_p, order, weights, result.margin);
  KeepTypical(params.typical_p, order, weights, result.margin);
  result.kept = order;
  result.probabilities = weights;
  std::vector<size_t> by_id(order.size());
  std::iota(by_id.begin(), by_id.end(), 0);
  std::sort(by_id.begin(), by_id.end(), [&](size_t a, size_t b) { return order[a] < order[b]; });
  double sum = 0;
  for (size_t index : by_id) {
    sum += weights[index];
    result.token = order[index];
    result.margin = std::min(result.margin, std::abs(sum - uniform));
    if (sum > uniform) break;
  }
  return result;
}

}  // namespace baton::sampling
