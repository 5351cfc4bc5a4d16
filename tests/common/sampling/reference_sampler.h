// SPDX-License-Identifier: Apache-2.0
// The plain meaning of sampling: double precision, everything sorted.
#pragma once

#include <span>
#include <vector>

#include "common/base/types.h"
#include "common/sampling/logit_edits.h"
#include "common/sampling/params.h"

namespace baton::sampling {

struct ReferenceResult {
  TokenId token = 0;
  std::vector<TokenId> kept;          // best first
  std::vector<double> probabilities;  // of `kept`
  // Distance, in probability, of the nearest decision that could have fallen
  // otherwise: a rounding error that large explains another token.
  double margin = 1;
};

ReferenceResult SampleByReference(std::span<const float> logits, const Position& position,
                                  double uniform, const Params& params);

}  // namespace baton::sampling
