// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "common/sampling/logit_row.h"
#include "common/sampling/philox.h"
#include "common/sampling/weights.h"

namespace baton::sampling {
namespace {

constexpr float kGreedyBelow = 1e-5f;
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr size_t kFirstCandidates = 64;  // of top-p, before it widens

// Buffers of one thread, kept so that a call allocates nothing.
struct Scratch {
  LogitRow raw;
  LogitRow penalized;
  std::vector<float> penalized_logits;
  std::vector<Candidate> candidates;
  std::vector<double> group_sums;
};

// The scaled distribution over a row: weight of x is exp((x - max) * scale).
struct Distribution {
  LogitRow& row;
  float scale;

  double WeightOf(float logit) const { return Weight(logit, row.max(), scale); }
  double Total(std::vector<double>& group_sums) const {
    return SumWeights(row.logits(), row.max(), scale, group_sums);
  }
};

bool ById(const Candidate& a, const Candidate& b) { return a.id < b.id; }

double SumOf(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

void Weigh(const Distribution& distribution, std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) {
    candidate.weight = distribution.WeightOf(candidate.logit);
  }
}

// Moves the shortest prefix, in the order `before`, whose weights satisfy
// `reached` to the front; returns its length, and leaves its last one at the
// end of it. Halves by selection until little is left to sort. Sums are exact,
// so the result does not depend on the path.
template <typename Before, typename Reached>
size_t ShortestPrefix(std::vector<Candidate>& candidates, Before before, Reached reached) {
  constexpr size_t kSortBelow = 128;
  size_t low = 0;
  size_t high = candidates.size();
  double sum = 0;  // of [0, low)
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
  while (high - low > kSortBelow) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(at(low), at(middle), at(high), before);
    const double half = SumOf(std::span(candidates).subspan(low, middle - low));
    if (reached(sum + half)) {
      high = middle;
    } else {
      sum += half;
      low = middle;
    }
  }
  std::sort(at(low), at(high), before);
  for (size_t i = low; i < high; ++i) {
    sum += candidates[i].weight;
    if (reached(sum)) return i + 1;
  }
  return high;
}

// Where in [0, total) the draw falls; below `total` also after rounding.
double DrawPoint(double uniform, double total) {
  return std::min(uniform * total, std::nextafter(total, 0.0));
}

TokenId DrawFromAll(const Distribution& distribution, double uniform, Scratch& scratch) {
  const std::span<const float> logits = distribution.row.logits();
  const double point = DrawPoint(uniform, distribution.Total(scratch.group_sums));
  double sum = 0;
  size_t group = 0;
  while (sum + scratch.group_sums[group] <= point) sum += scratch.group_sums[group++];
  size_t id = group * kWeightGroup;
  while ((sum += distribution.WeightOf(logits[id])) <= point) ++id;
  return static_cast<TokenId>(id);
}

TokenId DrawFromKept(std::vector<Candidate>& kept, double uniform) {
  const double point = DrawPoint(uniform, SumOf(kept));
  const size_t length = ShortestPrefix(kept, ById, [point](double sum) { return sum > point; });
  return kept[length - 1].id;
}

void KeepTopK(const Distribution& distribution, size_t k, std::vector<Candidate>& kept) {
  distribution.row.Gather(distribution.row.BoundFor(k), kept);
  if (kept.size() > k) {
    std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(k), kept.end(),
                     Better);
    kept.resize(k);
  }
  Weigh(distribution, kept);
}

// Candidates, the best ones, that hold at least `target` of the weight.
void GatherWeight(const Distribution& distribution, double target, std::vector<Candidate>& kept) {
  for (size_t count = kFirstCandidates;; count *= 8) {
    distribution.row.Gather(distribution.row.BoundFor(count), kept);
    Weigh(distribution, kept);
    if (kept.size() == distribution.row.logits().size() || SumOf(kept) >= target) return;
  }
}

TokenId Draw(LogitRow& row, const Params& params, double uniform, Scratch& scratch) {
  // No overflow for tiny temperatures: 0 x kFloatMax is 0.
  const Distribution distribution{row, std::min(1.0f / params.temperature, kFloatMax)};
  const size_t size = row.logits().size();
  const bool use_top_k = params.top_k > 0 && params.top_k < size;
  if (!use_top_k && params.top_p >= 1) return DrawFromAll(distribution, uniform, scratch);

  std::vector<Candidate>& kept = scratch.candidates;
  double target = 0;
  if (use_top_k) {
    KeepTopK(distribution, params.top_k, kept);
    target = params.top_p * SumOf(kept);
  } else {
    target = params.top_p * distribution.Total(scratch.group_sums);
    GatherWeight(distribution, target, kept);
  }
  if (params.top_p < 1) {
    kept.resize(ShortestPrefix(kept, Better, [target](double sum) { return sum >= target; }));
  }
  return DrawFromKept(kept, uniform);
}

// Puts the penalized copy of `logits` into `out`. From the original value each
// time, so a token that stands in `history` twice is penalized once.
void Penalize(std::span<const float> logits, std::span<const TokenId> history, float penalty,
              std::vector<float>& out) {
  out.assign(logits.begin(), logits.end());
  for (TokenId token : history) {
    if (token >= logits.size()) continue;
    const float logit = logits[token];
    out[token] = std::clamp(logit > 0 ? logit / penalty : logit * penalty, -kFloatMax, kFloatMax);
  }
}

TokenLogprobs ComputeLogprobs(LogitRow& row, TokenId token, size_t alternatives, Scratch& scratch) {
  const double log_total = std::log(SumWeights(row.logits(), row.max(), 1, scratch.group_sums));
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - row.max()) - log_total);
  };
  TokenLogprobs result{logprob(row.logits()[token]), {}};
  std::vector<Candidate>& best = scratch.candidates;
  if (alternatives > 0) {
    row.Gather(row.BoundFor(alternatives), best);
    alternatives = std::min(alternatives, best.size());
    std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(alternatives),
                      best.end(), Better);
    for (size_t i = 0; i < alternatives; ++i) {
      result.top.emplace_back(best[i].id, logprob(best[i].logit));
    }
  }
  return result;
}

}  // namespace

double CounterUniform(uint64_t seed, uint32_t choice, uint32_t output_index) {
  const auto bits = Philox4x32({output_index, choice, 0, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = uint64_t{bits[1]} << 32 | bits[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

absl::StatusOr<Sample> SampleToken(std::span<const float> logits, uint32_t usable_vocabulary,
                                   std::span<const TokenId> history, uint32_t output_index,
                                   const Params& params) {
  thread_local Scratch scratch;
  const auto usable = logits.first(std::min<size_t>(usable_vocabulary, logits.size()));
  if (!scratch.raw.Scan(usable)) {
    return absl::InternalError("the model gave a logit that is NaN or infinite");
  }
  LogitRow* row = &scratch.raw;
  if (params.repetition_penalty != 1) {
    Penalize(usable, history, params.repetition_penalty, scratch.penalized_logits);
    scratch.penalized.Scan(scratch.penalized_logits);
    row = &scratch.penalized;
  }
  Sample sample;
  sample.token = params.temperature < kGreedyBelow
                     ? row->argmax()
                     : Draw(*row, params, CounterUniform(params.seed, 0, output_index), scratch);
  if (params.logprobs) {
    sample.logprobs = ComputeLogprobs(scratch.raw, sample.token, *params.logprobs, scratch);
  }
  return sample;
}

}  // namespace baton::sampling
