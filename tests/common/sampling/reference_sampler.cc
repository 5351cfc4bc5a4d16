// SPDX-License-Identifier: Apache-2.0
#include "tests/common/sampling/reference_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace baton::sampling {
namespace {

std::vector<double> Normalized(std::vector<double> weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

}  // namespace

ReferenceResult SampleByReference(std::span<const float> logits, std::span<const TokenId> history,
                                  double uniform, const Params& params) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (TokenId token : std::set<TokenId>(history.begin(), history.end())) {
    double& score = scores[token];
    // In float, as the sampler does: the order of near-equal logits counts.
    score = score > 0 ? static_cast<float>(score) / params.repetition_penalty
                      : static_cast<float>(score) * params.repetition_penalty;
  }
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
  weights = Normalized(weights);
  if (params.top_p < 1) {
    double sum = 0;
    size_t count = 0;
    while (count < weights.size() && sum < params.top_p) {
      sum += weights[count++];
      result.margin = std::min(result.margin, std::abs(sum - params.top_p));
    }
    order.resize(count);
    weights.resize(count);
    weights = Normalized(weights);
  }
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
