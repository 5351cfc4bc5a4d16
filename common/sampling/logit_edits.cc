// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/logit_edits.h"

#include <algorithm>
#include <cmath>

#include "common/sampling/float_bounds.h"

namespace baton::sampling {
namespace {

float Clamp(float logit) { return std::clamp(logit, -kFloatMax, kFloatMax); }

// What penalties do, ready for many tokens: no branch depends on a token, since
// none could be foreseen. Steps that are off leave a logit as it is.
class Penalties final {
 public:
  explicit Penalties(const Params& params)
      : repetition_(params.repetition_penalty),
        presence_(params.presence_penalty),
        frequency_(params.frequency_penalty) {}

  float Of(float logit, uint32_t outputs) const {
    const float divided = logit / repetition_, multiplied = logit * repetition_;
    logit = Clamp(logit > 0 ? divided : multiplied);
    const float present = Clamp(logit - presence_);
    const float frequent = Clamp(present - frequency_ * static_cast<float>(outputs));
    return outputs > 0 ? frequent : logit;
  }

 private:
  const float repetition_, presence_, frequency_;
};

bool Penalize(const Params& params, const Position& position, std::span<float> logits) {
  TokenHistory own;
  const TokenHistory* history = position.history;
  if (history == nullptr) {
    own.Update(position.tokens, position.prompt_tokens());
    history = &own;
  }
  const Penalties penalties(params);
  bool finite = true;
  for (const TokenHistory::Entry& entry : history->entries()) {
    if (entry.token >= logits.size()) continue;
    float& logit = logits[entry.token];
    finite &= std::abs(logit) <= kFloatMax;  // false for NaN
    logit = penalties.Of(logit, entry.outputs);
  }
  return finite;
}

// Calls ban(token) for what bad sequences and min_tokens ban.
template <typename Ban>
void ForEachBanned(const Params& params, const Position& position, Ban ban) {
  for (const std::vector<TokenId>& sequence : params.bad_sequences) {
    const size_t before = sequence.size() - 1;
    if (before > position.tokens.size()) continue;
    if (std::equal(sequence.begin(), sequence.end() - 1,
                   position.tokens.end() - static_cast<std::ptrdiff_t>(before))) {
      ban(sequence.back());
    }
  }
  if (position.output_index >= params.min_tokens) return;
  for (const TokenId token : position.end_tokens) ban(token);
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

std::vector<TokenId> BannedTokens(const Params& params, const Position& position) {
  std::vector<TokenId> banned;
  ForEachBanned(params, position, [&banned](TokenId token) { banned.push_back(token); });
  return banned;
}

bool EditLogits(const Params& params, const Position& position, std::span<float> logits) {
  if (params.penalizes() && !Penalize(params, position, logits)) return false;
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= logits.size()) continue;
    if (!std::isfinite(logits[token])) return false;
    logits[token] = Clamp(logits[token] + bias);
  }
  ForEachBanned(params, position, [logits](TokenId token) {
    if (token < logits.size()) logits[token] = kBanned;
  });
  if (!position.allowed.empty()) BanOthers(position.allowed, logits);
  return true;
}

}  // namespace baton::sampling
