// SPDX-License-Identifier: Apache-2.0
#include "client/cli/divergence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "client/cli/quantile.h"

namespace baton::cli {

std::vector<double> LogSoftmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - most);
  const double shift = most + std::log(sum);
  std::vector<double> result;
  result.reserve(logits.size());
  for (float logit : logits) result.push_back(logit - shift);
  return result;
}

double KlDivergence(std::span<const double> log_p, std::span<const double> log_q) {
  double sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    const double p = std::exp(log_p[i]);
    if (p > 0) sum += p * (log_p[i] - log_q[i]);  // 0 log 0 is 0
  }
  return sum;
}

uint32_t ArgMax(std::span<const float> logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void Divergence::Add(std::span<const float> reference, std::span<const float> other) {
  kl_.push_back(KlDivergence(LogSoftmax(reference), LogSoftmax(other)));
  if (ArgMax(reference) == ArgMax(other)) ++same_top_;
}

Divergence::Summary Divergence::Summarize() const {
  Summary summary;
  summary.positions = kl_.size();
  if (kl_.empty()) return summary;
  const auto count = static_cast<double>(kl_.size());
  summary.mean_kl = std::accumulate(kl_.begin(), kl_.end(), 0.0) / count;
  summary.p99_kl = Quantile(kl_, 0.99);
  summary.same_top = static_cast<double>(same_top_) / count;
  return summary;
}

}  // namespace baton::cli
