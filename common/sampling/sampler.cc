// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/sampler.h"

#include <algorithm>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/sampling/float_bounds.h"
#include "common/sampling/philox.h"

namespace baton::sampling {
namespace {

// Buffers of one thread, kept so that a call allocates nothing.
struct SamplerScratch {
  Chain chain, raw;
  FloatArray edited;
};

SamplerScratch& ThreadSamplerScratch() {
  thread_local SamplerScratch scratch;
  return scratch;
}

// The row after the steps that change logits, ready for the others.
absl::Status StartChain(std::span<const float> usable, const Position& position,
                        const Params& params, SamplerScratch& scratch) {
  std::span<const float> row = usable;
  if (EditsLogits(params, position)) {
    scratch.edited.assign(usable.begin(), usable.end());
    if (!EditLogits(params, position, scratch.edited)) return NotFinite();
    row = scratch.edited;
  }
  if (!scratch.chain.Start(row)) return NotFinite();
  if (scratch.chain.max() == kBanned) return EveryTokenBanned(!position.allowed.empty());
  return absl::OkStatus();
}

// No overflow for tiny temperatures: 0 x kFloatMax is 0.
Cuts CutsOf(const Params& params) {
  return {.top_k = params.top_k,
          .scale = std::min(1.0f / params.temperature, kFloatMax),
          .top_p = params.top_p,
          .min_p = params.min_p,
          .typical_p = params.typical_p};
}

std::span<const float> Usable(std::span<const float> logits, uint32_t usable_vocabulary) {
  return logits.first(std::min<size_t>(usable_vocabulary, logits.size()));
}

absl::StatusOr<TokenLogprobs> LogprobsOf(std::span<const float> usable, TokenId token, size_t top,
                                         Chain& chain) {
  if (!chain.Start(usable)) return NotFinite();
  const double max = chain.max(), log_mass = chain.LogMass();
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - max) - log_mass);
  };
  TokenLogprobs result{logprob(usable[token]), {}};
  for (const KeptToken& kept : chain.Best(top)) {
    result.top.emplace_back(kept.id, logprob(kept.logit));
  }
  return result;
}

}  // namespace

absl::Status EveryTokenBanned(bool constrained) {
  if (!constrained) return absl::InternalError("every token is banned");
  return absl::FailedPreconditionError(
      "no token can follow: the constraint allows none of the vocabulary's, or none that bad "
      "words and min_tokens leave");
}

double CounterUniform(uint64_t seed, uint32_t choice, uint32_t output_index) {
  const auto bits = Philox4x32({output_index, choice, 0, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = uint64_t{bits[1]} << 32 | bits[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

absl::StatusOr<Sample> SampleToken(std::span<const float> logits, uint32_t usable_vocabulary,
                                   const Position& position, const Params& params) {
  SamplerScratch& scratch = ThreadSamplerScratch();
  const std::span<const float> usable = Usable(logits, usable_vocabulary);
  BATON_RETURN_IF_ERROR(StartChain(usable, position, params, scratch));
  Sample sample;
  if (params.temperature < kGreedyBelow) {
    sample.token = scratch.chain.argmax();
  } else {
    scratch.chain.Keep(CutsOf(params));
    sample.token =
        scratch.chain.Draw(CounterUniform(params.seed, position.choice, position.output_index));
  }
  if (params.logprobs) {
    BATON_ASSIGN_OR_RETURN(sample.logprobs,
                           LogprobsOf(usable, sample.token, *params.logprobs, scratch.raw));
  }
  return sample;
}

absl::StatusOr<TokenLogprobs> ComputeLogprobs(std::span<const float> logits, TokenId token,
                                              size_t top) {
  return LogprobsOf(logits, token, top, ThreadSamplerScratch().raw);
}

}  // namespace baton::sampling
