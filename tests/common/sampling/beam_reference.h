// SPDX-License-Identifier: Apache-2.0
// Beam search done twice more, each in the plainest way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/sampling/beam_search.h"

namespace baton::testing {

// Logits that depend on all tokens so far. `levels`: so many distinct values; 0:
// any number.
class ToyModel final {
 public:
  ToyModel(uint32_t vocabulary, uint32_t seed, uint32_t levels)
      : vocabulary_(vocabulary), seed_(seed), levels_(levels) {}

  std::vector<float> Logits(std::span<const TokenId> outputs) const;
  // A prompt of one token, 0, and the outputs.
  std::vector<TokenId> WithPrompt(std::span<const TokenId> outputs) const;
  uint32_t vocabulary() const { return vocabulary_; }

 private:
  uint32_t vocabulary_, seed_, levels_;
};

struct Scored {
  std::vector<TokenId> tokens;
  double score = 0;
};

// All lines that end with one of `ends` or have `length` tokens, best first.
std::vector<Scored> Exhaustive(const ToyModel& model, const sampling::Params& params,
                               const std::vector<TokenId>& ends, double length_penalty,
                               uint32_t length);

// The rules of types.proto over whole [width, vocabulary] matrices, best first.
std::vector<Scored> ByTheRules(const ToyModel& model, const sampling::BeamParams& beam,
                               const sampling::Params& params, const std::vector<TokenId>& ends,
                               uint32_t length);

}  // namespace baton::testing
