// SPDX-License-Identifier: Apache-2.0
#include "tests/common/sampling/beam_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace baton::testing {
namespace {

using sampling::BeamParams;
using sampling::EarlyStopping;
using sampling::Params;

constexpr double kNever = -1e9;  // of a place that is not taken

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Log-softmax, then the edits that these tests use, written anew.
std::vector<double> Values(const ToyModel& model, const Params& params,
                           const std::vector<TokenId>& outputs, const std::vector<TokenId>& ends) {
  const std::vector<float> logits = model.Logits(outputs);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  std::vector<double> values;
  for (const float logit : logits) {
    values.push_back(static_cast<float>(double{logit} - std::log(sum)));
  }
  const std::vector<TokenId> all = model.WithPrompt(outputs);
  for (TokenId id = 0; id < values.size(); ++id) {
    if (Contains(all, id)) values[id] *= params.repetition_penalty;
  }
  for (const auto& [id, bias] : params.logit_bias) values[id] += bias;
  for (const std::vector<TokenId>& bad : params.bad_sequences) {
    const size_t before = bad.size() - 1;
    const bool there = before <= all.size() && std::equal(bad.begin(), bad.end() - 1,
                                                          all.end() - static_cast<long>(before));
    if (there) values[bad.back()] = -std::numeric_limits<double>::infinity();
  }
  for (const TokenId end : ends) {
    if (outputs.size() < params.min_tokens) values[end] = -std::numeric_limits<double>::infinity();
  }
  return values;
}

struct Line {
  std::vector<TokenId> tokens;
  double sum = 0;
  bool ends = false;
};

void Extend(const ToyModel& model, const Params& params, const std::vector<TokenId>& ends,
            double length_penalty, uint32_t length, const Line& line, std::vector<Scored>& out) {
  const std::vector<double> values = Values(model, params, line.tokens, ends);
  for (TokenId id = 0; id < values.size(); ++id) {
    if (std::isinf(values[id])) continue;
    Line next = line;
    next.tokens.push_back(id);
    next.sum += values[id];
    if (Contains(ends, id) || next.tokens.size() == length) {
      const double size = static_cast<double>(next.tokens.size());
      out.push_back({next.tokens, next.sum / std::pow(size, length_penalty)});
    } else {
      Extend(model, params, ends, length_penalty, length, next, out);
    }
  }
}

}  // namespace

std::vector<float> ToyModel::Logits(std::span<const TokenId> outputs) const {
  std::seed_seq seq{seed_, static_cast<uint32_t>(outputs.size())};
  std::vector<uint32_t> material(outputs.begin(), outputs.end());
  material.push_back(seed_ + 1000);
  std::seed_seq mixed(material.begin(), material.end());
  std::mt19937 random(mixed);
  std::vector<float> logits(vocabulary_);
  for (float& logit : logits) {
    const uint32_t bits = random();
    logit = levels_ > 0 ? static_cast<float>(bits % levels_) : static_cast<float>(bits) * 0x1p-30f;
  }
  return logits;
}

std::vector<TokenId> ToyModel::WithPrompt(std::span<const TokenId> outputs) const {
  std::vector<TokenId> tokens = {0};
  tokens.insert(tokens.end(), outputs.begin(), outputs.end());
  return tokens;
}

std::vector<Scored> Exhaustive(const ToyModel& model, const Params& params,
                               const std::vector<TokenId>& ends, double length_penalty,
                               uint32_t length) {
  std::vector<Scored> all;
  Extend(model, params, ends, length_penalty, length, {}, all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  return all;
}

std::vector<Scored> ByTheRules(const ToyModel& model, const BeamParams& beam, const Params& params,
                               const std::vector<TokenId>& ends, uint32_t length) {
  std::vector<Line> running = {Line{}};
  std::vector<Scored> finished;  // [width], best first; kNever: free
  finished.resize(beam.width, {{}, kNever});
  for (uint32_t size = 1;; ++size) {
    std::vector<Line> candidates;
    for (const Line& line : running) {
      const std::vector<double> values = Values(model, params, line.tokens, ends);
      for (TokenId id = 0; id < values.size(); ++id) {
        if (std::isinf(values[id])) continue;
        Line next = line;
        next.tokens.push_back(id);
        next.sum = line.sum + static_cast<double>(static_cast<float>(values[id]));
        next.ends = Contains(ends, id) || size == length;
        candidates.push_back(next);
      }
    }
    // By beam and id already.
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Line& a, const Line& b) { return a.sum > b.sum; });
    const double divisor = std::pow(size, beam.length_penalty);
    std::vector<Scored> merged = finished;
    running.clear();
    for (size_t rank = 0; rank < candidates.size(); ++rank) {
      const Line& line = candidates[rank];
      if (line.ends && rank < beam.width) merged.push_back({line.tokens, line.sum / divisor});
      if (!line.ends && running.size() < beam.width) running.push_back(line);
    }
    std::stable_sort(merged.begin(), merged.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    merged.resize(beam.width);
    finished = merged;
    const bool full = finished.back().score > kNever;
    if (size == length || running.empty()) break;
    if (full && beam.early_stopping == EarlyStopping::kAlways) break;
    const bool longest = beam.early_stopping == EarlyStopping::kNever && beam.length_penalty > 0;
    const double bound =
        running.front().sum / std::pow(longest ? length : size, beam.length_penalty);
    if (full && bound <= finished.back().score) break;
  }
  std::erase_if(finished, [](const Scored& scored) { return scored.score <= kNever; });
  return finished;
}

}  // namespace baton::testing
