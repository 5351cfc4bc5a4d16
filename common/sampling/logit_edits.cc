// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/logit_edits.h"

#include <algorithm>
#include <cmath>

namespace baton::sampling {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();

float Clamp(float logit) { return std::clamp(logit, -kFloatMax, kFloatMax); }

float Penalized(float logit, const TokenHistory::Entry& entry, const Params& params) {
  if (params.repetition_penalty != 1) {
    logit =
        Clamp(logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty);
  }
  if (entry.outputs > 0) {
    logit = Clamp(logit - params.presence_penalty);
    logit = Clamp(logit - params.frequency_penalty * static_cast<float>(entry.outputs));
  }
  return logit;
}

bool Penalize(const Params& params, const Position& position, std::span<float> logits) {
  TokenHistory own;
  const TokenHistory* history = position.history;
  if (history == nullptr) {
    own.Update(position.tokens, position.prompt_tokens());
    history = &own;
  }
  for (const TokenHistory::Entry& entry : history->entries()) {
    if (entry.token >= logits.size()) continue;
    float& logit = logits[entry.token];
    if (!std::isfinite(logit)) return false;
    logit = Penalized(logit, entry, params);
  }
  return true;
}

void BanSequences(const Params& params, const Position& position, std::span<float> logits) {
  for (const std::vector<TokenId>& sequence : params.bad_sequences) {
    const size_t before = sequence.size() - 1;
    if (before > position.tokens.size() || sequence.back() >= logits.size()) continue;
    if (std::equal(sequence.begin(), sequence.end() - 1,
                   position.tokens.end() - static_cast<std::ptrdiff_t>(before))) {
      logits[sequence.back()] = kBanned;
    }
  }
}

void BanOthers(std::span<const uint64_t> allowed, std::span<float> logits) {
  constexpr size_t kWord = 64;
  for (size_t begin = 0; begin < logits.size(); begin += kWord) {
    const uint64_t word = begin / kWord < allowed.size() ? allowed[begin / kWord] : 0;
    const std::span<float> part = logits.subspan(begin, std::min(kWord, logits.size() - begin));
    if (word == 0) {
      std::fill(part.begin(), part.end(), kBanned);
    } else if (word != ~uint64_t{0}) {
      for (size_t i = 0; i < part.size(); ++i) part[i] = (word >> i & 1) != 0 ? part[i] : kBanned;
    }
  }
}

}  // namespace

bool EditsLogits(const Params& params, const Position& position) {
  return params.penalizes() || !params.logit_bias.empty() || !params.bad_sequences.empty() ||
         position.output_index < params.min_tokens || !position.allowed.empty();
}

bool EditLogits(const Params& params, const Position& position, std::span<float> logits) {
  if (params.penalizes() && !Penalize(params, position, logits)) return false;
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= logits.size()) continue;
    if (!std::isfinite(logits[token])) return false;
    logits[token] = Clamp(logits[token] + bias);
  }
  BanSequences(params, position, logits);
  if (position.output_index < params.min_tokens) {
    for (TokenId token : position.end_tokens) {
      if (token < logits.size()) logits[token] = kBanned;
    }
  }
  if (!position.allowed.empty()) BanOthers(position.allowed, logits);
  return true;
}

}  // namespace baton::sampling
