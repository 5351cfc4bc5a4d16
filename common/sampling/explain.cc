// SPDX-License-Identifier: Apache-2.0
// The chain step by step: SampleToken's own code, with the steps that are
// still to come turned off.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"

namespace baton::sampling {
namespace {

// Turns one step on in `so_far`; false when `params` does not use it.
struct Step {
  const char* name;
  bool (*take)(const Params& params, Params& so_far);
};

template <auto kField>
bool Take(const Params& params, Params& so_far) {
  const Params off;
  so_far.*kField = params.*kField;
  return !(params.*kField == off.*kField);
}

constexpr Step kSteps[] = {
    {"repetition penalty", Take<&Params::repetition_penalty>},
    {"presence penalty", Take<&Params::presence_penalty>},
    {"frequency penalty", Take<&Params::frequency_penalty>},
    {"logit bias", Take<&Params::logit_bias>},
    {"bad words", Take<&Params::bad_sequences>},
    {"min tokens", Take<&Params::min_tokens>},
    {"constraint", nullptr},  // of the position
    {"temperature", Take<&Params::temperature>},
    {"top-k", Take<&Params::top_k>},
    {"top-p", Take<&Params::top_p>},
    {"min-p", Take<&Params::min_p>},
    {"typical", Take<&Params::typical_p>},
};

absl::StatusOr<StepDistribution> Describe(const char* name, std::span<const float> usable,
                                          const Position& position, const Params& params,
                                          size_t limit) {
  std::vector<float> edited(usable.begin(), usable.end());
  Chain chain;
  if (!EditLogits(params, position, edited) || !chain.Start(edited)) {
    return absl::InternalError("the model gave a logit that is NaN or infinite");
  }
  if (chain.max() == kBanned) return absl::InternalError("every token is banned");
  chain.Keep({.top_k = params.top_k,
              .scale = 1.0f / params.temperature,
              .top_p = params.top_p,
              .min_p = params.min_p,
              .typical_p = params.typical_p});
  StepDistribution step;
  step.step = name;
  const std::vector<KeptToken> kept = chain.Kept();
  step.kept = kept.size();
  for (size_t i = 0; i < std::min(limit, kept.size()); ++i) {
    step.top.emplace_back(kept[i].id, kept[i].weight / chain.total());
  }
  return step;
}

}  // namespace

absl::StatusOr<std::vector<StepDistribution>> ExplainSampling(std::span<const float> logits,
                                                              uint32_t usable_vocabulary,
                                                              const Position& position,
                                                              const Params& params, size_t limit) {
  const auto usable = logits.first(std::min<size_t>(usable_vocabulary, logits.size()));
  Params so_far;
  so_far.temperature = 1;
  Position place = position;
  place.allowed = {};
  std::vector<StepDistribution> steps;
  BATON_ASSIGN_OR_RETURN(steps.emplace_back(), Describe("model", usable, place, so_far, limit));
  for (const Step& step : kSteps) {
    if (step.take == nullptr) {
      place.allowed = position.allowed;
      if (place.allowed.empty()) continue;
      BATON_ASSIGN_OR_RETURN(steps.emplace_back(),
                             Describe(step.name, usable, place, so_far, limit));
      continue;
    }
    const bool greedy =
        step.take == Take<&Params::temperature> && params.temperature < kGreedyBelow;
    if (greedy) {  // the best token alone, whatever the other steps would keep
      so_far.top_k = 1;
      BATON_ASSIGN_OR_RETURN(steps.emplace_back(),
                             Describe("greedy", usable, place, so_far, limit));
      break;
    }
    if (!step.take(params, so_far)) continue;
    BATON_ASSIGN_OR_RETURN(steps.emplace_back(), Describe(step.name, usable, place, so_far, limit));
  }
  return steps;
}

}  // namespace baton::sampling
