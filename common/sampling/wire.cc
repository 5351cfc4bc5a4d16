// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/wire.h"

#include <algorithm>

namespace baton::sampling {

Params ParamsFromWire(const v1::SamplingParams& wire) {
  Params params;
  params.temperature = wire.temperature();
  params.top_k = wire.top_k();
  if (wire.has_top_p()) params.top_p = wire.top_p();
  params.min_p = wire.min_p();
  if (wire.has_typical_p()) params.typical_p = wire.typical_p();
  params.seed = wire.seed();
  if (wire.has_repetition_penalty()) params.repetition_penalty = wire.repetition_penalty();
  params.presence_penalty = wire.presence_penalty();
  params.frequency_penalty = wire.frequency_penalty();
  params.logit_bias.assign(wire.logit_bias().begin(), wire.logit_bias().end());
  std::sort(params.logit_bias.begin(), params.logit_bias.end());  // a map has no order
  for (const v1::TokenIds& sequence : wire.bad_token_sequences()) {
    params.bad_sequences.emplace_back(sequence.ids().begin(), sequence.ids().end());
  }
  if (wire.has_logprobs()) params.logprobs = wire.logprobs();
  if (wire.has_prompt_logprobs()) params.prompt_logprobs = wire.prompt_logprobs();
  return params;
}

BeamParams BeamParamsFromWire(const v1::BeamParams& wire) {
  BeamParams params{.width = wire.width()};
  if (wire.has_length_penalty()) params.length_penalty = wire.length_penalty();
  switch (wire.early_stopping()) {
    case v1::EARLY_STOPPING_ALWAYS:
      params.early_stopping = EarlyStopping::kAlways;
      break;
    case v1::EARLY_STOPPING_NEVER:
      params.early_stopping = EarlyStopping::kNever;
      break;
    default:
      break;
  }
  return params;
}

}  // namespace baton::sampling
