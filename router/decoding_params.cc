// SPDX-License-Identifier: Apache-2.0
#include "router/decoding_params.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/sampling/wire.h"
#include "router/generation_params.h"

namespace baton::router {
namespace {

constexpr uint32_t kMostChoices = 32;
constexpr int kMostPhases = 8;
constexpr int kMostUntilTokens = 64;
// Of answers that are told at once: a stream holds a megabyte that waits.
constexpr uint64_t kMostAtOnce = 32768;

absl::Status CheckCount(std::string_view field, uint32_t value) {
  if (value >= 1 && value <= kMostChoices) return absl::OkStatus();
  return rpc::BadField(field, absl::StrCat("is ", value, "; it must be 1 to ", kMostChoices));
}

absl::Status CheckBeam(const std::string& field, const v1::BeamParams& beam) {
  if (const auto bad = sampling::FindBadParam(sampling::BeamParamsFromWire(beam))) {
    return rpc::BadField(absl::StrCat(field, ".", bad->field), bad->problem);
  }
  if (v1::EarlyStopping_IsValid(beam.early_stopping())) return absl::OkStatus();
  return rpc::BadField(absl::StrCat(field, ".early_stopping"),
                       absl::StrCat("is ", static_cast<int>(beam.early_stopping()),
                                    "; it must be 0 to ", static_cast<int>(v1::EarlyStopping_MAX)));
}

absl::Status CheckBeamRequest(const v1::DecodingParams& in, const ValidatedRequest& out) {
  BATON_RETURN_IF_ERROR(CheckBeam("decoding.beam", in.beam()));
  if (in.beam().width() < out.choices) {
    return rpc::BadField("decoding.beam.width",
                         absl::StrCat("is ", in.beam().width(), "; decoding.n is ", out.choices,
                                      ", and the search has no more hypotheses than its width"));
  }
  if (in.has_best_of()) {
    return rpc::BadField("decoding.best_of",
                         absl::StrCat("is ", in.best_of(), " and decoding.beam.width is ",
                                      in.beam().width(), "; a search picks its best by itself"));
  }
  if (out.sampling.temperature() > 0) {
    return rpc::BadField(
        "sampling.temperature",
        absl::StrFormat("is %g and decoding.beam.width is %u; a search draws nothing",
                        out.sampling.temperature(), in.beam().width()));
  }
  return absl::OkStatus();
}

// What is the request's, and not a phase's.
absl::Status CheckOwnFields(const std::string& field, const v1::SamplingParams& sampling) {
  const std::pair<bool, const char*> fields[] = {
      {sampling.has_logprobs(), "logprobs"},
      {sampling.has_prompt_logprobs(), "prompt_logprobs"},
      {sampling.preset() != v1::SAMPLING_PRESET_UNSPECIFIED, "preset"}};
  for (const auto& [set, name] : fields) {
    if (!set) continue;
    return rpc::BadField(absl::StrCat(field, ".sampling.", name),
                         absl::StrCat("is set; it belongs to sampling.", name));
  }
  return absl::OkStatus();
}

absl::Status CheckEnd(const std::string& field, const v1::Phase& phase, bool last) {
  if (phase.until_token_ids_size() > kMostUntilTokens) {
    return rpc::BadField(absl::StrCat(field, ".until_token_ids"),
                         absl::StrCat("has ", phase.until_token_ids_size(), " ids; the limit is ",
                                      kMostUntilTokens));
  }
  if (last && !phase.until_token_ids().empty()) {
    return rpc::BadField(absl::StrCat(field, ".until_token_ids"),
                         absl::StrCat("has ", phase.until_token_ids_size(),
                                      " ids; the last phase ends with stop.stop_token_ids"));
  }
  if (!last && phase.max_tokens() == 0 && phase.until_token_ids().empty()) {
    return rpc::BadField(
        absl::StrCat(field, ".max_tokens"),
        absl::StrCat("is 0 and ", field, ".until_token_ids is empty: the phase never ends"));
  }
  return absl::OkStatus();
}

absl::Status AddPhase(const std::string& field, const v1::Phase& in, bool last,
                      const ServedModel& model, ValidatedRequest& out) {
  BATON_RETURN_IF_ERROR(CheckEnd(field, in, last));
  BATON_RETURN_IF_ERROR(
      CheckIds(absl::StrCat(field, ".until_token_ids"), in.until_token_ids(), model));
  BATON_RETURN_IF_ERROR(CheckOwnFields(field, in.sampling()));
  v1::Phase& phase = *out.decoding.add_phases();
  phase = in;
  BATON_RETURN_IF_ERROR(ResolveSampling(absl::StrCat(field, ".sampling"), out.sampling,
                                        in.sampling(), model, *phase.mutable_sampling()));
  if (!in.has_beam()) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(CheckBeam(absl::StrCat(field, ".beam"), in.beam()));
  if (out.choices_made > 1) {
    const bool best_of = out.choices_made > out.choices;
    return rpc::BadField(
        absl::StrCat(field, ".beam.width"),
        absl::StrCat("is ", in.beam().width(), " and decoding.", best_of ? "best_of" : "n", " is ",
                     out.choices_made, "; one answer alone may have a beam phase"));
  }
  if (!last && out.window.limited()) {
    return rpc::BadField(
        absl::StrCat(field, ".beam.width"),
        absl::StrCat("is ", in.beam().width(), " and window is ", out.window.tokens,
                     "; an answer with a window cannot go on from a search"));
  }
  if (in.sampling().temperature() > 0) {
    return rpc::BadField(absl::StrCat(field, ".sampling.temperature"),
                         absl::StrFormat("is %g and %s.beam.width is %u; a search draws nothing",
                                         in.sampling().temperature(), field, in.beam().width()));
  }
  out.width = std::max(out.width, in.beam().width());
  return absl::OkStatus();
}

absl::Status AddPhases(const v1::DecodingParams& in, const ServedModel& model,
                       ValidatedRequest& out) {
  if (in.phases_size() > kMostPhases) {
    return rpc::BadField("decoding.phases", absl::StrCat("has ", in.phases_size(),
                                                         " phases; the limit is ", kMostPhases));
  }
  if (in.has_beam() && !in.phases().empty()) {
    return rpc::BadField(
        "decoding.phases",
        absl::StrCat("has ", in.phases_size(), " phases and decoding.beam.width is ",
                     in.beam().width(), "; give a phase its own beam instead"));
  }
  for (int i = 0; i < in.phases_size(); ++i) {
    BATON_RETURN_IF_ERROR(AddPhase(absl::StrCat("decoding.phases[", i, "]"), in.phases(i),
                                   i + 1 == in.phases_size(), model, out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetDecoding(const v1::DecodingParams& in, const ServedModel& model,
                         ValidatedRequest& out) {
  out.choices = in.has_n() ? in.n() : 1;
  out.choices_made = in.has_best_of() ? in.best_of() : out.choices;
  BATON_RETURN_IF_ERROR(CheckCount("decoding.n", out.choices));
  BATON_RETURN_IF_ERROR(CheckCount("decoding.best_of", out.choices_made));
  if (out.choices_made < out.choices) {
    return rpc::BadField("decoding.best_of",
                         absl::StrCat("is ", out.choices_made, "; decoding.n is ", out.choices,
                                      ", and the n best are taken of them"));
  }
  out.width = out.choices_made;
  if (in.has_beam()) {
    BATON_RETURN_IF_ERROR(CheckBeamRequest(in, out));
    *out.decoding.mutable_beam() = in.beam();
    out.width = in.beam().width();
  }
  // Ranks by them.
  out.hides_logprobs = out.picks_best() && !out.sampling.has_logprobs();
  if (out.hides_logprobs) out.sampling.set_logprobs(0);
  out.decoding.set_n(out.choices);
  if (!in.has_beam()) out.decoding.set_best_of(out.choices_made);
  BATON_RETURN_IF_ERROR(AddPhases(in, model, out));
  out.begins_with_search = in.has_beam() || (!in.phases().empty() && in.phases(0).has_beam());
  return absl::OkStatus();
}

absl::Status CheckLengths(const ValidatedRequest& request) {
  uint64_t before = 0;
  for (int i = 1; i < request.decoding.phases_size(); ++i) {
    before += request.decoding.phases(i - 1).max_tokens();
    if (before < request.max_tokens) continue;
    return rpc::BadField(
        absl::StrCat("decoding.phases[", i - 1, "].max_tokens"),
        absl::StrCat("is ", request.decoding.phases(i - 1).max_tokens(),
                     ", with the phases before it ", before, "; stop.max_tokens is ",
                     request.max_tokens, ", so that decoding.phases[", i, "] never begins"));
  }
  if (!request.ranked()) return absl::OkStatus();
  const bool logprobs = request.sampling.has_logprobs() && !request.hides_logprobs;
  const uint64_t numbers = logprobs ? uint64_t{2} + request.sampling.logprobs() : uint64_t{1};
  const uint64_t all = uint64_t{request.choices} * request.max_tokens * numbers;
  if (all <= kMostAtOnce) return absl::OkStatus();
  return rpc::BadField(
      "decoding.n",
      absl::StrCat(
          "is ", request.choices, " and stop.max_tokens is ", request.max_tokens, "; answers of ",
          request.picks_best() ? "best_of" : "beams", " are sent at once, and n times max_tokens",
          logprobs ? " times 2 + logprobs" : "", " is ", all, "; the limit is ", kMostAtOnce));
}

}  // namespace baton::router
