// SPDX-License-Identifier: Apache-2.0
// How far one model's predictions are from another's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton::cli {

// log(softmax(logits)) in float64.
std::vector<double> LogSoftmax(std::span<const float> logits);

// Kullback-Leibler divergence in nats, KL(p || q) = sum p (log p - log q), of
// log-probabilities. REQUIRES: equal sizes.
double KlDivergence(std::span<const double> log_p, std::span<const double> log_q);

// Index of the largest; the first of equal ones. REQUIRES: not empty.
uint32_t ArgMax(std::span<const float> logits);

// Gathers pairs of rows of logits.
class Divergence final {
 public:
  struct Summary {
    uint64_t positions = 0;
    double mean_kl = 0;
    double p99_kl = 0;    // numpy.quantile(kl, 0.99)
    double same_top = 0;  // share of positions whose most probable token is the same
  };

  void Add(std::span<const float> reference, std::span<const float> other);
  Summary Summarize() const;

 private:
  std::vector<double> kl_;
  uint64_t same_top_ = 0;
};

}  // namespace baton::cli
