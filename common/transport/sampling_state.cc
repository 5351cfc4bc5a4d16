// SPDX-License-Identifier: Apache-2.0
#include "common/transport/sampling_state.h"

#include "common/transport/frame.h"

namespace baton::transport {
namespace {

using Candidates = google::protobuf::RepeatedPtrField<baton::v1::BeamCandidate>;

void Fill(const std::vector<CommitState::Candidate>& candidates, Candidates& out) {
  for (const CommitState::Candidate& candidate : candidates) {
    baton::v1::BeamCandidate& added = *out.Add();
    added.set_token(candidate.token);
    added.set_value(candidate.value);
    added.set_logprob(candidate.logprob);
  }
}

std::vector<CommitState::Candidate> From(const Candidates& candidates) {
  std::vector<CommitState::Candidate> out;
  for (const baton::v1::BeamCandidate& candidate : candidates) {
    out.push_back({candidate.token(), candidate.value(), candidate.logprob()});
  }
  return out;
}

}  // namespace

void FillState(const CommitState& state, baton::v1::SamplingState& out) {
  out.set_version(kSamplingStateVersion);
  out.set_drawn(state.drawn);
  out.mutable_first_tokens()->Add(state.first_tokens.begin(), state.first_tokens.end());
  Fill(state.beam_candidates, *out.mutable_beam_candidates());
  Fill(state.top, *out.mutable_top());
}

CommitState StateFrom(const baton::v1::SamplingState& state) {
  return {.first_tokens = {state.first_tokens().begin(), state.first_tokens().end()},
          .drawn = state.drawn(),
          .beam_candidates = From(state.beam_candidates()),
          .top = From(state.top())};
}

}  // namespace baton::transport
